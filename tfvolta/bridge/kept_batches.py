"""The last batches that a model was trained with, kept so that a bad step can be looked into afterwards.

A train function of one batch gives its batch back beside its results: the tensors are those that the data pipeline has
made, and stay where they are. Nothing is copied and no device does anything; they are let go when newer ones come.
"""

from __future__ import annotations

import collections
from typing import Any, Iterator


class BatchKeeper:
    """Keeps the last batches.

    Attributes:
        number: How many.
        active: Whether anybody may want them.
    """

    def __init__(self, number: int):
        self.number = number
        self.active = False
        self._batches: collections.deque[Any] = collections.deque(maxlen=number)

    def __deepcopy__(self, memo: dict[int, Any]) -> BatchKeeper:
        return self

    def restart(self, active: bool) -> None:
        """Lets go of what is kept."""
        self.active = active
        self._batches.clear()

    def keep(self, batch: Any) -> None:
        """Takes a batch, as the train step was given it."""
        if self.active:
            self._batches.append(batch)

    def batches(self) -> list[Any]:
        """Those that are kept, the oldest first."""
        return list(self._batches)


class KeptIterator:
    """Stands in for a data iterator while a train step is traced or run, and notes what was taken from it.

    Attributes:
        batch: What was taken last; a tuple, which may be empty.
    """

    def __init__(self, iterator: Any):
        self._iterator = iterator
        self.batch: tuple[Any, ...] = ()

    def get_next(self) -> Any:
        """The next batch."""
        batch = self._iterator.get_next()
        self.batch = (batch,)
        return batch

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._iterator) if not hasattr(self._iterator, "get_next") else self._iterator.get_next()
        self.batch = (batch,)
        return batch
