"""Going on from a checkpoint: what the bridges hand out and take, and offer."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Protocol

Named = tuple[str, Any]  # a name for a person, and a tf.Variable


@dataclasses.dataclass(frozen=True)
class FitStart:
    """Where a fit begins that goes on from a checkpoint.

    Attributes:
        epoch: The epoch that goes on.
        batch: Batches of it that were trained.
        epoch_batches: Batches of an epoch, where an epoch has shown it.
        advance: Called once with the epoch's data iterator and the number of batches that it has to leave out, before
            the first batch is taken.
    """

    epoch: int
    batch: int
    epoch_batches: Optional[int]
    advance: Callable[[Any, int], None]


@dataclasses.dataclass(frozen=True)
class FitStream:
    """How the running fit reads its data.

    Attributes:
        kind: ``arrays``, ``dataset``, ``remote`` where other processes read them (parameter servers), or the name of
            Keras's adapter for another kind.
        whole_fit: Whether one iterator serves all epochs; else each epoch has a new one.
        order: ``fixed``, ``seeded`` or ``unseeded``; ``unknown`` for Python code that Keras calls.
        epoch_batches: Batches of an epoch, where fit knows it.
        iterator: The iterator that the running epoch reads, where it can be reached.
    """

    kind: str
    whole_fit: bool
    order: str
    epoch_batches: Optional[int] = None
    iterator: Optional[Any] = None


class Resuming(Protocol):
    """The part of every bridge that concerns going on from a checkpoint inside ``fit``."""

    def training_variables(self, model: Any) -> dict[str, list[Named]]:
        """Every variable that training changes, by group.

        ``model`` has the weights and, in Keras 3, the states of seeds; ``optimizer`` slots, counts, rates and the loss
        scale; ``counters`` what Keras counts, and random generators; ``loss_scale`` what is counted beside a scale with
        hysteresis; ``metrics``, complete only when a step was traced.
        """

    def create_training_variables(self, model: Any) -> bool:
        """Makes the optimiser's variables, as its first step would; False where the model has no variables yet."""

    def trace_step(self, model: Any, iterator: Any) -> None:
        """Traces the train function for an iterator, after which every variable of the training exists.

        Nothing runs, no batch is taken, and training uses the trace. A step that runs eagerly is left alone.
        """

    def start_fit(self, model: Any, start: FitStart) -> None:
        """Makes the running ``fit`` begin at a checkpoint's place; to be called from ``on_train_begin``."""

    def advance_data(self, model: Any) -> None:
        """Passes over what was trained already; to be called from the first ``on_epoch_begin`` after ``start_fit``."""

    def end_fit(self, model: Any) -> None:
        """Lets a later fit of this model begin where it is told to; to be called from ``on_train_end``."""

    def fit_stream(self, model: Any) -> Optional[FitStream]:
        """How the running ``fit`` reads its data; None outside one."""

    def unsaved_random(self, model: Any) -> list[str]:
        """Layers that draw from kernels whose state nobody can save, by name."""

    def rivals(self, model: Any) -> list[str]:
        """Callbacks of the running ``fit`` that tell it where to begin too, by class name."""

    def add_last_callback(self, model: Any, callback: Any) -> bool:
        """Puts a callback behind all others of the running ``fit``, from ``on_train_begin``; False outside one."""

    def is_fit(self, model: Any, frame: Any) -> bool:
        """Whether a Python frame lies inside the running ``fit`` of a model."""
