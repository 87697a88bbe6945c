"""Ports of a job: its own, so that two jobs on one machine do not meet."""

from __future__ import annotations

import itertools
import zlib

# Below the ports that Linux hands out by itself (32768 on), above those that need privileges or are well known.
FIRST, LAST = 10240, 32767
# Ports of one job on a machine: tasks take them from the start, the meeting before training from the middle on.
WIDTH = 64
MEETING = WIDTH // 2
_SLOTS = (LAST + 1 - FIRST) // WIDTH
# Steps of one job are moved by a step that shares no factor with the number of slots.
_STRIDE = 41


def job_port(job: str, step: str = "0") -> int:
    """First port of a job on each of its machines; jobs with neighbouring numbers never share one.

    Args:
        job: The number or name by which the launcher knows the job.
        step: Number of a step inside the job.
    """
    number = int(job) if job.isdigit() else zlib.crc32(job.encode())
    return FIRST + WIDTH * ((number + _STRIDE * (int(step) if step.isdigit() else 0)) % _SLOTS)


def meeting_ports(port: int, taken: frozenset[int], count: int = 4) -> tuple[int, ...]:
    """Ports on which the chief may meet the others before training; it takes the first that is free.

    Args:
        port: The chief's own port of the cluster.
        taken: Ports that the cluster uses on the chief's machine.
        count: How many to name.
    """
    span = 65536 - FIRST
    candidates = (FIRST + (port - FIRST + MEETING + step) % span for step in range(span))
    return tuple(itertools.islice((candidate for candidate in candidates if candidate not in taken), count))


def meeting_port(port: int, taken: frozenset[int]) -> int:
    """The first of ``meeting_ports``, which a launcher keeps free."""
    return meeting_ports(port, taken, 1)[0]
