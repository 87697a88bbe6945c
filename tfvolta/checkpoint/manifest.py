"""What a checkpoint says about itself: where training was, and what the state belongs to."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Mapping, Optional, Sequence

from pydantic import BaseModel, ConfigDict, Field

from tfvolta.errors import Problem

FILE_NAME = "manifest.json"
GROUPS = ("model", "optimizer", "counters")  # restored before the first step; metrics come when they exist
LOSS_SCALE = "loss_scale"  # what is counted beside a loss scale; a run may have it and the one before it not


@dataclasses.dataclass(frozen=True)
class Position:
    """Where in its data a training is.

    Attributes:
        epoch: The epoch that goes on.
        batch: Batches of it that were trained.
        steps: Batches that were trained in all epochs together.
    """

    epoch: int
    batch: int
    steps: int

    def __str__(self) -> str:
        epoch = f"epoch {self.epoch + 1}"  # as Keras prints it
        return f"step {self.steps} ({f'{epoch}, batch {self.batch}' if self.batch else f'the start of {epoch}'})"


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class VariableRecord(_Record):
    """One variable of the state."""

    name: str
    shape: tuple[Optional[int], ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)} {self.dtype}"


class Randomness(_Record):
    """States of the global random generators of one process, as Python and NumPy give them; null where not known."""

    python: Optional[tuple[int, tuple[int, ...], Optional[float]]] = None
    numpy: Optional[tuple[str, tuple[int, ...], int, int, float]] = None


class Manifest(_Record):
    """Everything that a checkpoint says about itself.

    Attributes:
        saved: ISO time, UTC.
        stack: The Keras that wrote it.
        epoch: The epoch that goes on.
        batch: Batches of it that were trained.
        steps: Batches that were trained in all epochs together.
        epochs: Epochs that fit was asked for.
        epoch_batches: Batches of an epoch; null where no epoch had ended and the data did not say.
        finished: Whether fit came to its end.
        workers: Processes that trained.
        replicas: Devices that trained.
        optimizer: Class of the optimiser.
        variables: The variables of each group, in their order in the files.
        iterator: Whether the files hold the state of the data iterator.
        randomness: Of each process when it was saved.
        epoch_randomness: Of each process when the epoch began.
        history: What Keras's history held: ``epoch``, and logs by name.
        files: Sizes of the files beside this one, in bytes.
    """

    format: Literal[1] = 1
    saved: str
    stack: str
    epoch: int = Field(ge=0)
    batch: int = Field(ge=0)
    steps: int = Field(ge=0)
    epochs: int
    epoch_batches: Optional[int] = None
    finished: bool = False
    workers: int = 1
    replicas: int = 1
    optimizer: str
    variables: Mapping[str, tuple[VariableRecord, ...]]
    iterator: bool = False
    randomness: tuple[Randomness, ...] = ()
    epoch_randomness: tuple[Randomness, ...] = ()
    history: Mapping[str, tuple[Any, ...]] = Field(default_factory=dict)
    files: Mapping[str, int] = Field(default_factory=dict)

    @property
    def position(self) -> Position:
        """Where training was; the start of the next epoch where the last batch of one was trained."""
        if self.batch and self.batch == self.epoch_batches:
            return Position(self.epoch + 1, 0, self.steps)
        return Position(self.epoch, self.batch, self.steps)


def difference(
    place: str, manifest: Manifest, variables: Mapping[str, Sequence[VariableRecord]], optimizer: str
) -> Optional[Problem]:
    """The first thing in which a checkpoint is another model's; None where it fits.

    Args:
        place: The checkpoint, as the reader knows it.
        manifest: What the checkpoint says.
        variables: Variables of the model that is there, by group.
        optimizer: Class of its optimiser.
    """
    for group in GROUPS:
        saved, present = manifest.variables.get(group, ()), tuple(variables.get(group, ()))
        unlike = [
            (number, was, now)
            for number, (was, now) in enumerate(zip(saved, present))
            if (was.shape, was.dtype) != (now.shape, now.dtype)
        ]
        replaced = group == "optimizer" and manifest.optimizer != optimizer
        if unlike and not replaced:
            number, was, now = unlike[0]
            return _unlike(place, group, f"{group} variable {number}: {was}", f"{now}")
        if unlike or len(saved) != len(present):
            was_there = f"{len(saved)} variables of the {_owner(group, manifest.optimizer)}"
            is_there = f"{len(present)} variables of the {_owner(group, optimizer)}"
            return _unlike(place, group, was_there, is_there)
    return None


def _owner(group: str, optimizer: str) -> str:
    return f"optimiser {optimizer}" if group == "optimizer" else group


def _unlike(place: str, group: str, saved: str, present: str) -> Problem:
    return Problem(
        where=place,
        expected=f"the model that wrote it: {saved}",
        received=f"now: {present}",
        why="a checkpoint is restored into the model and the optimiser that it was saved from"
        if group != "optimizer"
        else "the optimiser's state is part of the training; another optimiser cannot go on with it",
        fix="set checkpoint.directory to another folder, or checkpoint.resume: false to begin anew",
    )
