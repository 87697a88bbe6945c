"""Guarding train steps against running out of memory: what the bridges hand out and take, and offer."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Protocol

Shapes = tuple[tuple[str, tuple[Optional[int], ...]], ...]


@dataclasses.dataclass(frozen=True)
class GuardedSteps:
    """What a guard has seen of a model's steps.

    Attributes:
        early: Names of the variables that a step writes before all is computed.
        updates: Updates that were counted so far; None where nothing counts them.
        split_batches: Batches that were trained in parts in this fit.
        parts: In how many the last one was.
    """

    early: tuple[str, ...]
    updates: Optional[int]
    split_batches: int = 0
    parts: int = 0


@dataclasses.dataclass(frozen=True)
class FailedStep:
    """A call of the train or test function in which memory ran out.

    Attributes:
        error: What TensorFlow raised.
        shapes: Shapes of the batch by name, such as ``(("x", (4, 128, 2)), ...)``.
        updates: Whole updates that the call had made before; None where nothing counts them.
        half_done: Whether an update had begun and was not done; None where that cannot be told.
        put_back: Names of variables that the step had changed and that have their former values again.
        lost: Names of variables that may hold a part of the failed step.
        compiled: Whether XLA compiles the step.
        notes: What else is to be said of the step.
    """

    error: BaseException
    shapes: Shapes
    updates: Optional[int]
    half_done: Optional[bool]
    put_back: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    compiled: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the state is that after a number of whole batches, known for certain."""
        return self.half_done is False and not self.lost


OnFailure = Callable[[FailedStep, Any], Any]


class Guarding(Protocol):
    """The part of every bridge that concerns failures of a train step."""

    def watch_steps(self, model: Any) -> bool:
        """Makes a model's train step tell what it did when it fails; a traced one is traced anew."""

    def guard_steps(self, model: Any, on_failure: OnFailure, splits: bool = False) -> None:
        """Calls ``on_failure`` when memory runs out in a train step; to be called before each call of the function.

        Args:
            model: The model.
            on_failure: Takes the failed step and the iterator; raises.
            splits: Train the batch in parts first, and later ones of its size too.
        """

    def why_whole(self, model: Any) -> str:
        """Why a batch cannot be trained in parts with the update of the whole; empty where it can."""

    def guarded_steps(self, model: Any) -> GuardedSteps:
        """What the guard has seen so far; one device read."""

    def guard_tests(self, model: Any, on_failure: OnFailure) -> None:
        """The same for the function of ``evaluate``."""

    def unguard_steps(self, model: Any) -> None:
        """Puts the train and test functions back."""

    def validation_batch(self, model: Any) -> Optional[int]:
        """Rows of a validation batch in the running ``fit``; None where its data do not say."""

    def fit_callbacks(self, model: Any) -> list[Any]:
        """The callbacks of the running ``fit`` of a model."""
