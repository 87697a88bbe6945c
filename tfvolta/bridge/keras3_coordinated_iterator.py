"""Keras 3: an epoch of data for workers that a coordinator sends steps to."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

import tensorflow as tf
from keras.src.trainers.epoch_iterator import EpochIterator

from tfvolta.bridge.coordinated_data import why_not_remote


class WorkerBatches(NamedTuple):
    """What a step takes its data from, where each worker reads for itself.

    Attributes:
        iterators: One for each worker.
        steps: Batches that the step trains on, as a tensor.
    """

    iterators: Any
    steps: Any


class CoordinatedIterator(EpochIterator):  # type: ignore[misc]
    """Stands where Keras has its ``TFEpochIterator``.

    Attributes:
        on_workers: Whether each worker reads the data for itself, without end.
        why_here: Why it does not; empty where it does.
    """

    def __init__(self, *arguments: Any, distribute_strategy: Any, **keywords: Any) -> None:
        """Looks at the data; ``fit`` is told from ``evaluate`` by ``class_weight``, which it alone passes on."""
        super().__init__(*arguments, **keywords)
        self._strategy = distribute_strategy
        self._dataset = self.data_adapter.get_tf_dataset()
        self._iterators: Any = None
        given = keywords.get("x", arguments[0] if arguments else None)
        self.why_here = self._why_here(given, trains="class_weight" in keywords)
        self.on_workers = not self.why_here

    @property
    def element_spec(self) -> Any:
        """What a batch looks like."""
        return self._dataset.element_spec

    def tf_sync(self) -> None:
        """Waits for what was given out."""
        tf.distribute.coordinator.ClusterCoordinator(self._strategy).join()

    def _why_here(self, given: Any, trains: bool) -> str:
        if not trains:
            return "each batch has to be seen exactly once"
        if not isinstance(given, tf.data.Dataset):
            return f"a {type(given).__name__} exists in this process only"
        if not self.num_batches:
            return "nothing says how many batches an epoch has; steps_per_epoch would"
        return why_not_remote(self._dataset) or ""

    def _get_iterator(self) -> Any:
        return self._dataset

    def _enumerate_iterator(self) -> Iterator[tuple[int, int, Any]]:
        if not self.on_workers:
            yield from super()._enumerate_iterator()
            return
        if self._iterators is None:
            self._iterators = self._on_each_worker()
        self.data_adapter.on_epoch_begin()
        for first in range(0, self.num_batches, self.steps_per_execution):
            steps = min(self.steps_per_execution, self.num_batches - first)
            yield first, first + steps - 1, WorkerBatches(self._iterators, tf.constant(steps))
        self.data_adapter.on_epoch_end()

    def _on_each_worker(self) -> Any:
        """Iterators over the data, again and again, so that no worker runs out while others have still to do theirs."""
        dataset = self._dataset.repeat()
        if self._strategy.num_replicas_in_sync > 1:  # a worker with several GPUs divides each batch among them
            dataset = self._strategy.experimental_distribute_dataset(dataset)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        return iter(coordinator.create_per_worker_dataset(dataset))

    def __next__(self) -> Any:
        return next(self._epoch_iterator)
