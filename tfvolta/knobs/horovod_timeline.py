"""What Horovod's timeline shows: which tensors were reduced together, and how often Horovod looked for new ones.

The file is a Chrome trace that grows while training runs, so its end is missing; every tensor is a process in it, and
the tensors of one pack begin their ALLREDUCE one right after the other.

Source: ``horovod/common/operations.cc`` (``PerformOperation``) and ``timeline.cc``, Horovod 0.28.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any, Iterator, Mapping

_EVENT = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")
_DTYPE_BITS = re.compile(r"(\d+)$")


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The all-reduces of a timeline.

    Attributes:
        packs: Bytes of each tensor, by pack, in the order in which they were reduced.
        cycles_ms: Times between two looks for new tensors, ms; empty where cycles are not marked.
    """

    packs: tuple[tuple[int, ...], ...] = ()
    cycles_ms: tuple[float, ...] = ()

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest pack of several tensors; 0 where no two tensors were reduced together."""
        return max((sum(pack) for pack in self.packs if len(pack) > 1), default=0)

    @property
    def fused(self) -> int:
        """Packs of several tensors."""
        return sum(1 for pack in self.packs if len(pack) > 1)


def read_timeline(path: str) -> Timeline:
    """What a timeline file shows so far; nothing where it is not there yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse(file.read())
    except OSError:
        return Timeline()


def parse(text: str) -> Timeline:
    """What the text of a timeline shows; a last event that is not complete is left out."""
    packs: list[list[int]] = []
    sizes: dict[int, int] = {}
    cycles: list[float] = []
    previous_began = False
    for event in _events(text):
        began = event.get("ph") == "B" and event.get("name") == "ALLREDUCE"
        if began:
            if not previous_began:
                packs.append([])
            packs[-1].append(event["pid"])
        elif event.get("name") == "CYCLE_START":
            cycles.append(float(event["ts"]))
        elif event.get("ph") == "E" and "dtype" in event.get("args", {}):
            sizes[event["pid"]] = _bytes(event["args"])
        previous_began = began
    known = [tuple(sizes[tensor] for tensor in pack) for pack in packs if all(tensor in sizes for tensor in pack)]
    return Timeline(tuple(known), tuple((after - before) / 1000 for before, after in zip(cycles, cycles[1:])))


def _events(text: str) -> Iterator[Mapping[str, Any]]:
    for found in _EVENT.finditer(text):
        try:
            yield json.loads(found[0])
        except ValueError:
            continue


def _bytes(args: Mapping[str, Any]) -> int:
    """Bytes of a tensor from ``{"dtype": "float32", "shape": "[3, 4]"}``."""
    bits = _DTYPE_BITS.search(str(args["dtype"]))
    sizes = [int(size) for size in re.findall(r"\d+", str(args.get("shape", "")))]
    return math.prod(sizes) * (int(bits[1]) // 8 if bits else 1)
