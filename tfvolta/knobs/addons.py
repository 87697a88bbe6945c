"""Callbacks of TensorFlow Addons."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

CLASSES = {
    "time_limit_seconds": "TimeStopping",
    "progress_bar": "TQDMProgressBar",
    "average_checkpoint": "AverageModelCheckpoint",
}
_INSTEAD = {
    "time_limit_seconds": "remove it and end the job from outside (timeout, sbatch --time); checkpoint.on_preemption "
    "saves then",
    "progress_bar": "remove it: Keras's own bar is fit(verbose=1)",
    "average_checkpoint": "take optimizer.average_weights: exponential with keras.callbacks.ModelCheckpoint, after "
    "fit has put the average into the weights; on keras3 keras.callbacks.SwapEMAWeights(swap_on_epoch=True) before it",
}


class Addons(Knob):
    """Adds callbacks of TensorFlow Addons to fit: a time limit, tqdm's progress bar, a checkpoint of averaged weights.

    Binds: when fit makes its list of callbacks.
    """

    name = "addons"
    keys = ("addons.time_limit_seconds", "addons.progress_bar", "addons.average_checkpoint")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ()
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        if config.addons is None:
            return None
        given = {key: item for key, item in config.addons.model_dump(exclude_none=True).items() if item is not False}
        return given or None

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del environ
        if facts.stack == "keras2":
            return []
        return [
            Problem(
                where=f"addons.{key}",
                expected="the keras2 stack (TensorFlow 2.15 with tensorflow-addons 0.23)",
                received=f"{key}: {item} on {facts.stack}",
                why="TensorFlow Addons ended in 2024 and does not import beside this Keras",
                fix=_INSTEAD[key],
            )
            for key, item in value.items()
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        names = ", ".join(CLASSES[key] for key in value)
        if "average_checkpoint" in value and config.get("optimizer.average_weights") is None:
            return Forecast(
                Status.APPLIED,
                f"fit gets {names} of TensorFlow Addons.",
                "the script's optimizer is MovingAverage or SWA of TensorFlow Addons",
            )
        return Forecast(Status.APPLIED, f"fit gets {names} of TensorFlow Addons.")

    def apply(self, value: Any, context: Context) -> None:
        """The list of callbacks carries it."""

    def verify(self, value: Any, context: Context) -> Outcome:
        made = context.saved.get(self.name, [])
        served = [type(each).__name__ for each in made if getattr(each, "model", None) is context.model]
        missing = [CLASSES[key] for key in value if CLASSES[key] not in served]
        observed = {"callbacks": served}
        if not missing:
            return Outcome(Status.APPLIED, f"fit calls {', '.join(served)}.", observed)
        if not context.bridge.is_traced(context.model):
            return Outcome(Status.PENDING, "fit gets them with tfvolta's callbacks.", observed)
        return Outcome(
            Status.NO_EFFECT,
            f"fit was not given {', '.join(missing)}; write fit(callbacks=tfvolta.build_callbacks(config, model)).",
            observed,
        )
