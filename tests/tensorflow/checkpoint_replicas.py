"""Trains with two replicas on logical CPUs, crashes, goes on, and prints how far that is from a run without a crash.

Run as ``python -m tests.tensorflow.checkpoint_replicas FOLDER``: a process can split its CPU only once.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
from typing import Any

import tfvolta
from tests.stack import keras
from tests.tensorflow.checkpoint_models import DATA, CrashError, Interrupt, compiled, difference, fit, steps
from tfvolta.config import load_config


def trained(folder: pathlib.Path, kind: str, *callbacks: Any) -> Any:
    """One training under the config, in its strategy's scope."""
    config = load_config(
        strategy={"kind": "mirrored", "logical_cpus": 2, "devices": "all"},
        mixed_precision={"policy": "mixed_float16", "loss_scale": {"initial": 8.0, "growth_steps": 3}},
        checkpoint={"directory": str(folder / "checkpoints"), "every_steps": 2},
        run={"directory": str(folder / "runs"), "seed": 5},
    )
    with tfvolta.build_strategy(config).scope():
        model = compiled(optimizer=keras.optimizers.Adam(0.01))
    with contextlib.suppress(CrashError):
        fit(model, DATA[kind](), *tfvolta.build_callbacks(config), *callbacks)
    return model


def main(folder: pathlib.Path) -> dict[str, Any]:
    found = {}
    for kind in ("arrays", "seeded"):
        whole = trained(folder / kind / "whole", kind)
        trained(folder / kind / "crashed", kind, Interrupt(1, 5))
        model = trained(folder / kind / "crashed", kind)
        bridge = tfvolta.bridge.bridge_for(model)
        found[kind] = {
            "replicas": model.distribute_strategy.num_replicas_in_sync,
            "steps": steps(model),
            "difference": difference(model, whole),
            "loss": [model.history.history["loss"], whole.history.history["loss"]],
            "scales": [bridge.loss_scale(each.optimizer).scale for each in (model, whole)],
        }
    return found


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(pathlib.Path(sys.argv[1]))), flush=True)
