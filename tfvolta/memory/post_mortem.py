"""What is known after memory ran out in ``fit``: the record for the evidence, and the words for the reader."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.memory.exhaustion import Exhaustion, Held, size_text
from tfvolta.memory.pool import least_fragmentation
from tfvolta.memory.remedy import Remedy

_LISTED = 5
_REMEDIES = 4
Shapes = tuple[tuple[str, tuple[Optional[int], ...]], ...]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in the training it happened.

    Attributes:
        stage: ``train`` or ``validation``.
        epoch: The epoch, counted from 0 as Keras does for callbacks.
        batch: The batch in it, counted from 0.
        exact: Whether the number of the batch is certain; a call of several batches that counts none gives its first.
        worker: Name of the worker where several train; empty for one.
    """

    stage: str
    epoch: int
    batch: int
    exact: bool = True
    worker: str = ""

    def __str__(self) -> str:
        name = "batch" if self.stage == "train" else "validation batch"
        about = "" if self.exact else " or one of those that its call trains with it"
        where = f" on {self.worker}" if self.worker else ""
        return f"epoch {self.epoch}, {name} {self.batch}{about}{where}"


@dataclasses.dataclass(frozen=True)
class PostMortem:
    """Everything that is known.

    Attributes:
        place: Where in the training.
        exhaustion: What TensorFlow's text says.
        shapes: Of the batch, by name.
        batch_size: Rows of it; None where not known.
        devices: Memory of each GPU in bytes, as ``DeviceMemory`` records it.
        variables: The largest variables of the model and its optimiser.
        variables_bytes: All of them together.
        at_most: The batch size that the memory can hold at most; None where that cannot be said.
        remedies: What would help.
        state: What the model, the optimiser and the counters are now, in a sentence.
        restored: Whether that is the state after the last good batch.
        put_back: Variables that have their former values again.
        checkpoint: Where that state was saved; empty where it was not.
        notes: What else the reader should know.
    """

    place: Place
    exhaustion: Exhaustion
    shapes: Shapes
    batch_size: Optional[int]
    devices: Mapping[str, Any]
    variables: tuple[Held, ...]
    variables_bytes: int
    at_most: Optional[int]
    remedies: tuple[Remedy, ...]
    state: str
    restored: bool
    put_back: tuple[str, ...] = ()
    checkpoint: str = ""
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence."""
        return f"Memory ran out in {self.place}: {self.exhaustion.first_line}"

    def problems(self) -> list[Problem]:
        """The words for the reader."""
        device = self.exhaustion.device or "the device"
        ways = [str(remedy) for remedy in self.remedies[:_REMEDIES]]
        return [
            Problem(
                where=f"fit: {self.place}",
                expected=f"a step that fits into the memory of {device}{self._limit()}",
                received=f"{self._batch()}; {self._asked()}",
                why=" ".join([*self.notes, self.state]),
                fix="; or ".join(ways) if ways else "a smaller batch",
            )
        ]

    def to_json(self) -> dict[str, Any]:
        """The record for the evidence."""
        found = self.exhaustion
        return {
            "stage": self.place.stage,
            "epoch": self.place.epoch,
            "batch": self.place.batch,
            "batch_is_exact": self.place.exact,
            "error": found.first_line,
            "operation": found.operation or None,
            "device": found.device or None,
            "allocator": found.allocator or None,
            "asked_bytes": found.asked_bytes,
            "tensor_shape": list(found.shape) if found.shape is not None else None,
            "tensor_dtype": found.dtype or None,
            "allocated": [dataclasses.asdict(each) for each in found.held],
            "largest_variables": [dataclasses.asdict(each) for each in self.variables],
            "variables_bytes": self.variables_bytes,
            "input_shapes": {name: list(shape) for name, shape in self.shapes},
            "batch_size": self.batch_size,
            "batch_size_at_most": self.at_most,
            "devices": dict(self.devices),
            "fragmentation_at_least": self._fragmentation(),
            "remedies": [dataclasses.asdict(each) for each in self.remedies],
            "state": self.state,
            "state_is_after_last_good_batch": self.restored,
            "put_back": list(self.put_back),
            "checkpoint": self.checkpoint or None,
            "notes": list(self.notes),
        }

    def _fragmentation(self) -> Optional[float]:
        """What the failed allocation proves of the allocator's free memory; None where it proves nothing."""
        info = self.devices.get(self.exhaustion.device) or {}
        if not info.get("limit_bytes"):
            return None
        return least_fragmentation(self.exhaustion.asked_bytes, info["limit_bytes"] - info["current_bytes"])

    def _batch(self) -> str:
        shapes = ", ".join(f"{name} {_shape(shape)}" for name, shape in self.shapes) or "a batch of unknown shape"
        size = f"; batch size {self.batch_size}" if self.batch_size is not None else ""
        most = f", at most {self.at_most} can fit" if self.at_most is not None else ""
        return f"{shapes}{size}{most}"

    def _asked(self) -> str:
        found = self.exhaustion
        asked = f"{size_text(found.asked_bytes)} asked for" if found.asked_bytes is not None else "memory asked for"
        by = f" by {found.operation}" if found.operation else ""
        held = [f"{each.name} {size_text(each.size_bytes)}" for each in found.held[:_LISTED]]
        if held:
            return f"{asked}{by}; allocated were {', '.join(held)}"
        largest = [f"{each.name} {size_text(each.size_bytes)}" for each in self.variables[:3]]
        rest = f"; variables take {size_text(self.variables_bytes)}"
        return f"{asked}{by}{rest}" + (f", the largest {', '.join(largest)}" if largest else "")

    def _limit(self) -> str:
        info = self.devices.get(self.exhaustion.device) or {}
        limit = info.get("limit_bytes")
        return f" ({size_text(limit)})" if limit else ""


def _shape(shape: tuple[Optional[int], ...]) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"


def rows_of(shapes: Shapes) -> Optional[int]:
    """Rows of a batch: the first size of its first tensor."""
    return next((shape[0] for _, shape in shapes if shape), None)
