"""Keeping batches after the first epoch."""

from __future__ import annotations

from typing import Any, Mapping

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.input import InputKnob
from tfvolta.outcome import Outcome, Status


class InputCache(InputKnob):
    """Keeps the batches of the first epoch for the others, in memory or in a file.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "input_cache"
    keys = ("input.cache",)
    techniques = ("M8",)
    line = "dataset.cache() before what is random"

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        if value == "memory" or not value.endswith("/"):
            return []
        return [
            Problem(
                where="input.cache",
                expected="memory, or the name of a file",
                received=f"cache: {value}",
                why="TensorFlow makes files whose names begin with it",
                fix=f"cache: {value}train",
            )
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        if value == "memory":
            return Forecast(
                Status.APPLIED,
                "The batches of the first epoch are kept in memory, if an epoch takes at most half of what is free"
                f" (the machine has {facts.cpu.memory_mb or 'an unknown number of'} MiB) and nothing in it is random.",
            )
        return Forecast(
            Status.APPLIED,
            f"The batches of the first epoch are kept in {value}; files of that name from an earlier run are read"
            " instead of the data.",
        )

    def seen(self, value: Any, state: Any, context: Context) -> Outcome:
        observed = {"cache": state.cache}
        if state.cache:
            return Outcome(Status.APPLIED, f"The data set keeps its elements in {state.cache}.", observed)
        return self.missing(context, "The data set keeps nothing.", observed)
