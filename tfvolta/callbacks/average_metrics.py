"""Metrics of an epoch averaged over ranks, so that every callback of every rank sees the same."""

from __future__ import annotations

import math
from typing import Any, MutableMapping, Optional, cast

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.ranks import differing, exchange, others_of
from tfvolta.errors import ClusterError, Problem

_VALIDATION = "val_"


class AverageMetrics(Callback):
    """Averages the logs of each epoch over Horovod's ranks, in place, for all callbacks that come after it.

    Each rank's value counts with the number of examples that it saw, training and validation apart, so that a mean over
    examples (loss, accuracy, squared error) becomes the mean over the examples of all ranks, also where ranks saw
    different numbers. What is no mean over examples, such as AUC or a root mean square, becomes an average of ranks.
    Put it before callbacks that save or stop: they then decide alike on every rank.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.AverageMetrics(), keras.callbacks.EarlyStopping()])``

    Raises:
        ClusterError: Ranks compute different metrics.
    """

    def __init__(self) -> None:
        super().__init__()
        self._in_epoch = False
        self._train: Optional[int] = None
        self._validation: Optional[int] = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Starts an epoch: an evaluation from here to its end is its validation."""
        self._in_epoch = True
        self._train = self._validation = None

    def on_test_begin(self, logs: Logs = None) -> None:
        """Validation begins, which counts examples anew."""
        if self._in_epoch and self._train is None:
            self._train = self.bridge.examples_seen(self.model)

    def on_test_end(self, logs: Logs = None) -> None:
        """Validation has ended."""
        if self._in_epoch:
            self._validation = self.bridge.examples_seen(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Exchanges the epoch's metrics and puts the averages in their place."""
        self._in_epoch = False
        peers = others_of(self.model)
        if peers is None or logs is None:
            return
        if self._train is None:
            self._train = self.bridge.examples_seen(self.model)
        numbers = {key: value for key, value in ((key, _number(logs[key])) for key in logs) if value is not None}
        told = exchange(peers, {"counts": [self._train, self._validation], "logs": numbers})
        if differing([sorted(each["logs"]) for each in told]):
            raise ClusterError("Ranks compute different metrics.", [_different([each["logs"] for each in told])])
        averages = cast(MutableMapping[str, Any], logs)
        for key in numbers:
            counts = [each["counts"][key.startswith(_VALIDATION)] for each in told]
            averages[key] = average([each["logs"][key] for each in told], counts)


def average(values: list[float], counts: list[Optional[int]]) -> float:
    """The mean of all examples from the mean of each rank; ranks count alike where a count is not known.

    Args:
        values: One of each rank.
        counts: Examples that each is the mean of.
    """
    if all(value == values[0] for value in values):
        return values[0]
    known = [count for count in counts if count is not None]
    weights = known if len(known) == len(counts) and sum(known) > 0 else [1] * len(values)
    return math.fsum(value * weight for value, weight in zip(values, weights) if weight) / sum(weights)


def _number(value: Any) -> Optional[float]:
    """A metric as a float; None for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _different(logs: list[Any]) -> Problem:
    everywhere = set.intersection(*(set(each) for each in logs))
    own = [", ".join(sorted(set(each) - everywhere)) or "none of these" for each in logs]
    lists = "; ".join(f"rank {rank}: {names}" for rank, names in enumerate(own))
    return Problem(
        where="metrics",
        expected="the same metrics on every rank",
        received=lists,
        why="they are averaged over ranks at the end of an epoch",
        fix="compile with the same metrics and give validation_data on all ranks or on none",
    )
