"""One training of measure.py, in a process of its own: a model with XLA on or off, and what ``auto`` says of it.

worker.py MODEL on|off POLICY SECONDS full|tiny
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import tensorflow as tf

from benchmarks.jit_auto.models import MODELS
from benchmarks.turn_callback import ENDLESS, TurnCallback, keras_of, limit_memory, own_baton
from tfvolta.bridge import bridge_for
from tfvolta.callbacks import ApplyPlan
from tfvolta.config import load_config
from tfvolta.knobs.jit import Jit
from tfvolta.session import Origin, Session


def session_of(jit: str, stack: str) -> Session:
    """A session that sets nothing but XLA, and writes nothing."""
    return Session(load_config(xla={"jit": jit}, run={"strict": False}), stack=stack, origin=Origin(record=False))


def decided(stack: str, model: Any) -> dict[str, Any]:
    """What ``auto`` decides for this model on this machine, by its rules, and why."""
    context = session_of("auto", stack).context
    context.model = model
    decision = Jit().decide("auto", context)
    return {"auto_compiles": decision.on, "auto_reason": decision.reason}


def main() -> None:
    """Trains until the driver says that it is enough."""
    name, mode, policy, seconds, size = sys.argv[1:]
    baton = own_baton()
    keras = keras_of(tf)
    limit_memory(tf, None)
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(0)
    work = MODELS[name](keras, size == "full")
    bridge = bridge_for(work.model)
    work.model.compile("adam", work.loss, jit_compile=False)
    decision = decided(bridge.stack, work.model)
    session = session_of("model" if mode == "on" else "off", bridge.stack)

    def facts() -> dict[str, Any]:
        outcome = session.endings["jit"].outcome
        return {
            **decision,
            "compiled": bridge.jit(work.model).effective,
            "why": outcome.message,
            "refused_by_xla": outcome.observed.get("refused_by_xla", []),
            "layers": sorted({type(layer).__name__ for _, layer in bridge.layers(work.model)}),
            "stack": bridge.stack,
        }

    turns = TurnCallback(baton, len(work.batch[1]), seconds=float(seconds), facts=facts)
    data = tf.data.Dataset.from_tensors(work.batch).repeat().prefetch(2)
    baton.wait_for_warm_up()
    work.model.fit(data, callbacks=[ApplyPlan(session), turns], **ENDLESS)


if __name__ == "__main__":
    main()
