"""How variables are split over parameter servers: by size, along their first axis."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Sequence

MIB = 1024 * 1024
DEFAULT_LIMIT_MB = 128
# What TensorFlow's own partitioners count for a text, whose length no shape tells.
_BYTES_OF_STRING = 16


def shard_count(rows: int, size_bytes: int, limit_bytes: int, servers: int) -> int:
    """Into how many shards a variable is split.

    Args:
        rows: Length of its first axis, along which TensorFlow splits.
        size_bytes: Its size.
        limit_bytes: Up to this size it stays whole.
        servers: Number of parameter servers; more shards than these would share one.

    Returns:
        1 up to the limit; above it as many as keep each shard within the limit, at least 2, as far as there are
        servers and rows.
    """
    if size_bytes <= limit_bytes:
        return 1
    return max(1, min(servers, rows, math.ceil(size_bytes / limit_bytes)))


class SizePartitioner:
    """``variable_partitioner`` of ``tf.distribute.ParameterServerStrategy``: whole up to a limit, split above it.

    TensorFlow's ``MinSizePartitioner`` takes the size below which no *shard* falls, so a variable between once and
    twice that size stays whole; ``MaxSizePartitioner`` knows no number of servers. Here it is the variable's limit.
    """

    def __init__(self, limit_bytes: int, servers: int) -> None:
        """Prepares.

        Args:
            limit_bytes: Up to this size a variable stays whole.
            servers: Number of parameter servers.
        """
        self.limit_bytes = limit_bytes
        self.servers = servers

    def __call__(self, shape: Any, dtype: Any, axis: int = 0) -> list[int]:
        """Shards along each axis, 1 for all but the first.

        Args:
            shape: ``tf.TensorShape``, fully known.
            dtype: ``tf.DType``.
            axis: Always 0 in TensorFlow's parameter server strategy.
        """
        dimensions = [int(length) for length in shape]
        counts = [1] * len(dimensions)
        if dimensions:
            size = math.prod(dimensions) * (dtype.size or _BYTES_OF_STRING)
            counts[axis] = shard_count(dimensions[axis], size, self.limit_bytes, self.servers)
        return counts


@dataclasses.dataclass(frozen=True)
class Placed:
    """One variable, or one shard of one, where it lives.

    Attributes:
        name: Name of the variable that it is, or is a part of.
        device: TensorFlow's full name of its device, such as ``/job:ps/replica:0/task:1/device:CPU:0``.
        size_bytes: Its size.
    """

    name: str
    device: str
    size_bytes: int

    @property
    def server(self) -> str:
        """``ps 1`` for a device of parameter server 1; the device itself where it is no parameter server's."""
        parts = dict(part.split(":", 1) for part in self.device.split("/") if ":" in part)
        return f"ps {parts.get('task', '0')}" if parts.get("job") == "ps" else self.device


def bytes_by_server(placed: Sequence[Placed]) -> dict[str, int]:
    """Bytes of all variables and shards on each server, by its name, in the order of names."""
    totals: dict[str, int] = {}
    for item in placed:
        totals[item.server] = totals.get(item.server, 0) + item.size_bytes
    return dict(sorted(totals.items()))


def wrongly_split(
    placed: Mapping[str, Sequence[Placed]], rows: Mapping[str, int], limit_bytes: int, servers: int
) -> list[str]:
    """Sentences on variables that are not split as asked for, or whose shards share a server; empty where all are.

    Args:
        placed: Shards of each variable, by its name.
        rows: Length of each variable's first axis; 0 for a scalar.
        limit_bytes: Up to this size a variable stays whole.
        servers: Number of parameter servers.
    """
    found = []
    for name, shards in placed.items():
        expected = shard_count(rows[name], sum(shard.size_bytes for shard in shards), limit_bytes, servers)
        if len(shards) != expected:
            found.append(f"{name} is in {_parts(len(shards))} instead of {expected}")
        elif len({shard.server for shard in shards}) != len(shards):
            found.append(f"{name} has several shards on one server")
    return found


def _parts(count: int) -> str:
    return "one piece" if count == 1 else f"{count} shards"
