"""The other processes of a training, as seen from a running fit: how many there are, and an exchange with all of them.

A fit that depends on all workers doing the same, such as as many steps, or going on from one checkpoint, asks here
before it starts; what is wrong is then an error on every worker, and not a wait that never ends.
"""

from __future__ import annotations

import abc
import sys
from typing import Any, Sequence

_BYTES = 8  # of an integer that travels


class Peers(abc.ABC):
    """The processes that train together.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        writes_together: Whether reading the state of the training takes all processes, as variables of a strategy do.
    """

    rank: int
    size: int
    writes_together: bool = False

    @abc.abstractmethod
    def gather(self, values: Sequence[int]) -> list[list[int]]:
        """What every process gives, in the order of ranks; all have to call it, with equally many values."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what is written once."""
        return self.rank == 0

    @property
    def name(self) -> str:
        """This process in words."""
        return f"worker {self.rank}"

    def gather_one(self, value: int) -> list[int]:
        """One number of every process."""
        return [row[0] for row in self.gather([value])]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Bytes of every process, of any length."""
        lengths = self.gather_one(len(data))
        padded = data.ljust(-(-max(lengths) // _BYTES) * _BYTES, b"\0")
        parts = [padded[at : at + _BYTES] for at in range(0, len(padded), _BYTES)]
        words = [int.from_bytes(part, "little", signed=True) for part in parts]
        rows = self.gather(words) if words else [[] for _ in lengths]
        whole = (b"".join(word.to_bytes(_BYTES, "little", signed=True) for word in row) for row in rows)
        return [each[:length] for each, length in zip(whole, lengths)]


class Alone(Peers):
    """One process that trains by itself."""

    rank, size = 0, 1

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        return [list(values)]


class StrategyPeers(Peers):
    """The workers of a MultiWorkerMirroredStrategy; its own all-reduce carries the exchange.

    Every worker fills its own row of a table of zeros, and the sum of the tables has all rows. TensorFlow's gather
    would trace a function for each call.
    """

    writes_together = True

    def __init__(self, strategy: Any):
        resolver = strategy.cluster_resolver
        cluster = resolver.cluster_spec().as_dict()
        chiefs = len(cluster.get("chief", ()))
        self._strategy = strategy
        self.size = chiefs + len(cluster.get("worker", ()))
        self.rank = int(resolver.task_id or 0) + (chiefs if resolver.task_type == "worker" else 0)

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        import tensorflow as tf

        nothing = [0] * len(values)
        filled = [list(values) if rank == self.rank else nothing for rank in range(self.size)]
        first = self.rank * int(self._strategy.num_replicas_in_sync) // self.size

        def table(context: Any) -> Any:
            own = context.replica_id_in_sync_group == first
            return tf.constant(filled if own else [nothing] * self.size, tf.int64)

        with self._strategy.scope():
            given = self._strategy.experimental_distribute_values_from_function(table)
            rows: list[list[int]] = self._strategy.reduce(tf.distribute.ReduceOp.SUM, given, axis=None).numpy().tolist()
        return rows


class HorovodPeers(Peers):
    """Horovod's ranks."""

    def __init__(self, horovod: Any):
        self._horovod = horovod
        self.rank, self.size = int(horovod.rank()), int(horovod.size())

    @property
    def name(self) -> str:
        return f"rank {self.rank}"

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        import tensorflow as tf

        given = tf.constant([list(values)], tf.int64, shape=(1, len(values)))
        rows: list[list[int]] = self._horovod.allgather(given, name=f"tfvolta.gather.{len(values)}").numpy().tolist()
        return rows


def peers_of(model: Any) -> Peers:
    """The processes that train a model: its strategy's workers, Horovod's ranks, or this one alone."""
    strategy = model.distribute_strategy
    spec = getattr(getattr(strategy, "cluster_resolver", None), "cluster_spec", None)
    if spec is not None and "ps" not in spec().jobs:
        peers = StrategyPeers(strategy)
        return peers if peers.size > 1 else Alone()
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None and horovod.is_initialized() and horovod.size() > 1:
        return HorovodPeers(horovod)
    return Alone()
