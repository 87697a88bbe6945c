"""One training of measure.py, in a process of its own: a model with its activations kept or computed again."""

from __future__ import annotations

import json
import math
import os
import pathlib
import sys
from typing import Any, Optional

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(pathlib.Path(__file__).parent)]

import tensorflow as tf  # noqa: E402
from workload import MODELS, data_of  # noqa: E402

from benchmarks.turn_callback import ENDLESS, TurnCallback, keras_of, limit_memory, own_baton  # noqa: E402
from tfvolta.bridge import bridge_for  # noqa: E402
from tfvolta.bridge.recompute_units import Units, sized  # noqa: E402
from tfvolta.callbacks import GradientCheckpointing  # noqa: E402
from tfvolta.footprint.segments import measured  # noqa: E402


def activation_bytes(model: Any, batch: int) -> int:
    """What tfvolta estimates the activations of plain training at, as ``memory.recompute.budget_mb`` counts them."""
    bridge = bridge_for(model)
    adapter = bridge.recompute_adapter
    units = Units(adapter, model, bridge.layers(model)).all()
    return measured(sized(units, adapter, bridge.layer_figures(model, batch), batch), []).held_bytes


def callback_of(plan: dict[str, Any], estimate: int) -> Optional[GradientCheckpointing]:
    """The callback of a way; none where activations are kept."""
    if plan["way"] == "plain":
        return None
    kind, _, value = plan["way"].partition(" ")
    if kind == "every":
        return GradientCheckpointing(every=int(value))
    return GradientCheckpointing(budget_mb=max(1, math.ceil(float(value) / 100 * estimate / 2**20)))


def main() -> None:
    """Trains until the driver says that it is enough."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    baton = own_baton()
    keras = keras_of(tf)
    limit_memory(tf, plan.get("limit_gib"))
    keras.mixed_precision.set_global_policy(plan["policy"])
    keras.utils.set_random_seed(1)
    model = MODELS[plan["model"]](keras, plan["size"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-5), loss, jit_compile=plan["jit"] == "on")
    estimate = activation_bytes(model, plan["batch"])
    again = callback_of(plan, estimate)

    def facts() -> dict[str, Any]:
        found: dict[str, Any] = {
            "parameters": model.count_params(),
            "gradient_bytes": sum(math.prod(each.shape) * 4 for each in model.trainable_variables),
            "estimated_activation_bytes": estimate,
        }
        if again is not None:
            outcome = again.session.endings["recompute"].outcome
            found["outcome"] = {"status": outcome.status.value, "message": outcome.message[:400]}
            found["segments"] = len(outcome.observed.get("segments", ()))
            found["estimated_saved_bytes"] = outcome.observed.get("saved_bytes")
        return found

    turns = TurnCallback(baton, plan["batch"], seconds=plan["seconds"], facts=facts)
    data = data_of(plan["model"], plan["size"], plan["batch"])
    baton.wait_for_warm_up()
    callbacks = [turns] if again is None else [again, turns]
    model.fit(data, callbacks=callbacks, **ENDLESS)


if __name__ == "__main__":
    main()
