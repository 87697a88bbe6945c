"""Saving the state of training, and going on from it."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Journal, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

FIX = "write model.fit(..., callbacks=tfvolta.build_callbacks(config))"
_JOURNAL = "checkpoint journal"


@dataclasses.dataclass
class Progress:
    """What the running fit's callback has done; it keeps this up to date under the knob's name in ``Context.saved``.

    Attributes:
        directory: Folder of the fit's checkpoints.
        written: Checkpoints that were written.
        newest: The newest of them.
        readable: Whether the first of them was read back.
        resumed: Where the fit went on, in words; empty where it began anew.
        listens: Whether SIGTERM is heard.
    """

    directory: str
    written: int = 0
    newest: str = ""
    readable: bool = False
    resumed: str = ""
    listens: bool = False


class Checkpointing(Knob):
    """Saves the state of training as it goes, and goes on from the newest state that was saved.

    Binds: while fit runs; a callback saves between two batches and restores before the first.
    """

    name = "checkpoint"
    keys = (
        "checkpoint.directory",
        "checkpoint.every_steps",
        "checkpoint.every_epochs",
        "checkpoint.keep",
        "checkpoint.resume",
        "checkpoint.on_preemption",
    )
    phase = Phase.FIT
    closes_at = Moment.NEVER
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        return None if config.checkpoint is None else config.checkpoint.model_dump()

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        if "://" not in value["directory"]:
            return []
        return [
            Problem(
                where="",
                expected="a folder of a file system",
                received=value["directory"],
                why="a checkpoint is written beside the others and gets its name when it is whole; "
                "object stores cannot rename a folder at once",
                fix="set checkpoint.directory to a mounted folder, and copy finished checkpoints from there",
            )
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        resume = "goes on from the newest one" if value["resume"] else "begins anew"
        ending = " SIGTERM saves before the process ends with code 143." if value["on_preemption"] else ""
        return Forecast(
            Status.APPLIED,
            f"State is saved in {value['directory']} {_how_often(value)}, {value['keep']} are kept; "
            f"fit {resume}.{ending}",
        )

    def apply(self, value: Any, context: Context) -> None:
        """The callback carries it."""

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        context.saved[_JOURNAL] = journal

    def verify(self, value: Any, context: Context) -> Outcome:
        progress = context.saved.get(self.name)
        if progress is None and context.bridge.is_traced(context.model):
            return Outcome(Status.NO_EFFECT, "fit was given no callback that saves, so nothing is saved.", {}, FIX)
        if progress is None or not progress.written:
            return Outcome(Status.PENDING, "Nothing is saved yet.")
        observed = dataclasses.asdict(progress)
        if not progress.readable:
            return Outcome(Status.NO_EFFECT, f"What was saved in {progress.newest} cannot be read back.", observed)
        deaf = value["on_preemption"] and not progress.listens
        words = [
            f"{progress.resumed}." if progress.resumed else "",
            f"Saved {_how_often(value)} in {progress.directory}, and read back.",
            "fit runs outside of the main thread, where Python hears no signal: SIGTERM saves nothing." if deaf else "",
        ]
        return Outcome(Status.APPLIED, " ".join(filter(None, words)), observed)


def settle(context: Context) -> None:
    """Enters how the knob ended, after a checkpoint was written."""
    journal = context.saved.get(_JOURNAL)
    if journal is not None:
        journal.settle()


def _how_often(value: Any) -> str:
    steps, epochs = value["every_steps"], value["every_epochs"]
    words = [f"every {steps} batches"] if steps else []
    words += [f"every {epochs} epochs" if epochs != 1 else "every epoch"] if epochs or not steps else []
    return " and ".join(words).replace("every None epochs", "every epoch")
