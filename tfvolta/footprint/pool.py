"""TensorFlow's own allocator of a GPU, as far as it decides what a step's tensors take of the card.

``get_memory_info`` counts pieces of memory as they are handed out, and a piece may be larger than what was asked for:
the smallest free one that is large enough is taken, and only divided where half of it or 128 MiB would be left over.
Source: ``Extend``, ``FindChunkPtr`` and ``RoundedBytes`` of ``BFCAllocator``, tsl/framework/bfc_allocator.cc.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Optional

from tfvolta.footprint.liveness import Memory, order_of
from tfvolta.footprint.step import Step

_ROUNDED_TO = 256
_FIRST_REGION = 2 * 2**20
_LEFT_OVER = 128 * 2**20
_STEPS = 2  # the second one finds the pool as the first one has left it


@dataclasses.dataclass
class _Piece:
    size: int
    in_use: bool = False
    before: Optional[int] = None
    after: Optional[int] = None


class Pool:
    """Pieces of memory, in regions each of which is at least as large as all before it: the pool grows as it needs.

    Attributes:
        in_use: Bytes of the pieces that are handed out.
        peak: The most that ``in_use`` has been.
    """

    def __init__(self) -> None:
        self.in_use = 0
        self.peak = 0
        self._pieces: dict[int, _Piece] = {}
        self._free: list[tuple[int, int]] = []  # sizes with addresses, in order
        self._region = _FIRST_REGION
        self._end = 0

    def fill(self, size: int) -> None:
        """Takes so much in all as pieces that fit exactly: what is there before the step."""
        left = size
        while left > 0:
            address = self._extended(_ROUNDED_TO)
            piece = self._pieces[address]
            self._divide(address, min(piece.size, -(-left // _ROUNDED_TO) * _ROUNDED_TO))
            left -= self._pieces[address].size
            self._hand_out(address)

    def take(self, size: int) -> int:
        """The address of a piece for so many bytes."""
        rounded = max(1, -(-size // _ROUNDED_TO)) * _ROUNDED_TO
        found = bisect.bisect_left(self._free, (rounded, 0))
        address = self._free[found][1] if found < len(self._free) else self._extended(rounded)
        piece = self._pieces[address]
        if piece.size >= 2 * rounded or piece.size - rounded >= _LEFT_OVER:
            self._divide(address, rounded)
        self._hand_out(address)
        return address

    def give_back(self, address: int) -> None:
        """Frees a piece, which becomes one with free ones beside it."""
        piece = self._pieces[address]
        piece.in_use = False
        self.in_use -= piece.size
        if piece.after is not None and not self._pieces[piece.after].in_use:
            self._unlist(piece.after)
            self._unite(address)
        if piece.before is not None and not self._pieces[piece.before].in_use:
            address = piece.before
            self._unlist(address)
            self._unite(address)
        bisect.insort(self._free, (self._pieces[address].size, address))

    def _hand_out(self, address: int) -> None:
        piece = self._pieces[address]
        self._unlist(address)
        piece.in_use = True
        self.in_use += piece.size
        self.peak = max(self.peak, self.in_use)

    def _extended(self, size: int) -> int:
        """Takes another region of the card, twice as large as the last."""
        grown = False
        while self._region < size:
            self._region, grown = 2 * self._region, True
        address, self._end = self._end, self._end + self._region
        self._pieces[address] = _Piece(self._region)
        bisect.insort(self._free, (self._region, address))
        if not grown:
            self._region *= 2
        return address

    def _divide(self, address: int, size: int) -> None:
        piece = self._pieces[address]
        if piece.size == size:
            return
        self._unlist(address)
        rest = address + size
        self._pieces[rest] = _Piece(piece.size - size, False, address, piece.after)
        if piece.after is not None:
            self._pieces[piece.after].before = rest
        piece.size, piece.after = size, rest
        bisect.insort(self._free, (piece.size, address))
        bisect.insort(self._free, (self._pieces[rest].size, rest))

    def _unite(self, address: int) -> None:
        """Adds the piece behind one to it."""
        piece = self._pieces[address]
        gone = self._pieces.pop(piece.after)  # type: ignore[arg-type]
        piece.size += gone.size
        piece.after = gone.after
        if gone.after is not None:
            self._pieces[gone.after].before = address

    def _unlist(self, address: int) -> None:
        entry = (self._pieces[address].size, address)
        position = bisect.bisect_left(self._free, entry)
        if position < len(self._free) and self._free[position] == entry:
            del self._free[position]


class _Pooled(Memory):
    """Buffers of a step in a pool."""

    def __init__(self, step: Step, pool: Pool) -> None:
        super().__init__(step)
        self._pool = pool
        self._address: dict[int, int] = {}

    def _taken(self, tensor: int, size: int) -> None:
        if size:
            self._address[tensor] = self._pool.take(size)

    def _moved(self, former: int, tensor: int) -> None:
        if former in self._address:
            self._address[tensor] = self._address.pop(former)

    def _given(self, tensor: int) -> None:
        if tensor in self._address:
            self._pool.give_back(self._address.pop(tensor))

    def close(self) -> None:
        """Gives back what is held still: results of the step."""
        for tensor in list(self._address):
            self._given(tensor)


def pooled_peak(step: Step, resident: int) -> int:
    """The most that a pool hands out to a step beside what is resident; without variables, as ``peak_of``.

    Args:
        step: The step.
        resident: Bytes that are in use before each step: variables, data, constants.
    """
    pool = Pool()
    pool.fill(resident)
    order, peak, started = order_of(step), 0, pool.in_use
    for _ in range(_STEPS):
        pool.peak = pool.in_use
        memory = _Pooled(step, pool)
        for number in order:
            memory.start(number)
            if step.operations[number].scratch:
                pool.give_back(pool.take(step.operations[number].scratch))
            memory.finish(number)
        memory.close()
        peak = pool.peak - started
    return peak
