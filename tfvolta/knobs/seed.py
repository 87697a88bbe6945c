"""The seed of Python, NumPy and TensorFlow."""

from __future__ import annotations

import random
from typing import Any

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


class Seed(Knob):
    """Seeds Python, NumPy and TensorFlow, so that weights and shuffles repeat.

    Binds: when a random number is drawn; for initial weights, when the layers are built.
    """

    name = "seed"
    keys = ("run.seed",)
    phase = Phase.DEVICES
    closes_at = Moment.MODEL_BUILT
    move_to = "call tfvolta.build_strategy(config) before the model is made: its initial weights are drawn already"
    techniques = ("P8",)
    changes_results = True
    undoable = False

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        repeat = "" if config.get("debug.deterministic") else " Equal bits on a GPU need debug.deterministic as well."
        return Forecast(Status.APPLIED, f"Python, NumPy and TensorFlow start from seed {value}.{repeat}")

    def apply(self, value: Any, context: Context) -> None:
        context.bridge.keras.utils.set_random_seed(value)
        # Draws move the state on, so it can be compared with a fresh generator only at this moment.
        context.saved[self.name] = {"python": _python_matches(value), "numpy": _numpy_matches(value)}

    def verify(self, value: Any, context: Context) -> Outcome:
        from tfvolta.bridge.tensorflow_private import global_seed

        observed = {**(context.saved.get(self.name) or {}), "tensorflow": global_seed()}
        wrong = [part for part in ("python", "numpy") if not observed.get(part)]
        wrong += [] if observed["tensorflow"] == value else ["tensorflow"]
        if wrong:
            return Outcome(Status.NO_EFFECT, f"Not seeded with {value}: {', '.join(wrong)}.", observed)
        return Outcome(Status.APPLIED, f"Python, NumPy and TensorFlow were seeded with {value}.", observed)


def _python_matches(seed: int) -> bool:
    return random.getstate() == random.Random(seed).getstate()


def _numpy_matches(seed: int) -> bool:
    import numpy

    fresh = numpy.random.RandomState(seed).get_state(legacy=False)
    now = numpy.random.get_state(legacy=False)
    return bool((fresh["state"]["key"] == now["state"]["key"]).all() and fresh["state"]["pos"] == now["state"]["pos"])
