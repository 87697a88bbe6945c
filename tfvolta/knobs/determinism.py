"""Deterministic operations."""

from __future__ import annotations

from typing import Any

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


class Determinism(Knob):
    """Makes TensorFlow's operations give the same bits on every run, at a cost in speed; needs a seed.

    Binds: when kernels are created and algorithms chosen, so before the train step first runs.
    """

    name = "determinism"
    keys = ("debug.deterministic",)
    phase = Phase.DEVICES
    closes_at = Moment.TRAIN_STEP_TRACED
    move_to = "call tfvolta.build_strategy(config) before the first fit"
    techniques = ("P8",)
    changes_results = True

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if not value:
            return Forecast(
                Status.APPLIED,
                "Operations may choose the fastest algorithm, deterministic or not; that is the default.",
            )
        notes = ["Operations give the same bits on every run, and are slower."]
        if config.run.seed is None:
            notes.append("A random operation without a seed raises: set run.seed as well.")
        if facts.keras == "keras3" and config.get("xla.jit") is None:
            notes.append("Keras 3's own default then leaves XLA off.")
        return Forecast(Status.APPLIED, " ".join(notes))

    def apply(self, value: Any, context: Context) -> None:
        from tfvolta.bridge.tensorflow_private import op_determinism, set_op_determinism

        context.saved.setdefault(self.name, op_determinism())
        set_op_determinism(value)

    def verify(self, value: Any, context: Context) -> Outcome:
        del context
        from tfvolta.bridge.tensorflow_private import op_determinism

        # The state is the runtime's own, which every kernel asks; not a copy that Python keeps.
        seen = op_determinism()
        status = Status.APPLIED if seen == value else Status.NO_EFFECT
        return Outcome(
            status,
            f"The runtime asks its kernels for {'deterministic' if seen else 'the fastest'} algorithms.",
            {"deterministic": seen},
        )

    def undo(self, context: Context) -> bool:
        from tfvolta.bridge.tensorflow_private import set_op_determinism

        if self.name not in context.saved:
            return False
        set_op_determinism(context.saved.pop(self.name))
        return context.closed(self.closes_at) is None
