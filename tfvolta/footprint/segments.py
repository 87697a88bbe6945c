"""Where to cut a chain of blocks so that activations are computed again instead of kept. No TensorFlow.

A block that is trained plainly keeps its activations until its gradients are taken. A segment, one or more blocks that
follow each other, keeps its result only; its activations come back, all of them at once, while its gradients are taken.
So the most that is held at one time is what all plain blocks keep, the results of all segments, and the activations of
the largest segment.

Source: Chen, Xu, Zhang and Guestrin, Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174.
"""

from __future__ import annotations

import dataclasses
from typing import Iterator, NamedTuple, Optional, Sequence

Span = tuple[int, int]  # first block, and the one after the last
# Points of a trade-off curve, and largest segments that are tried: enough for about 1 % of a model's activations.
_POINTS = 32
_LIMITS = 16
_CHEAP_LIMITS = 128  # where a try costs little


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of a model behind which a single tensor goes on.

    Attributes:
        name: For messages.
        kept_bytes: What its gradients need, its result included.
        result_bytes: What the next block is given.
        work: What computing it again costs, in any unit, such as multiply-adds.
        repeatable: Whether it may be computed again.
        scope: Segments hold blocks of one scope only, such as one nested model.
    """

    name: str
    kept_bytes: int
    result_bytes: int
    work: float = 1.0
    repeatable: bool = True
    scope: int = 0


@dataclasses.dataclass(frozen=True)
class Cut:
    """Segments of a chain.

    Attributes:
        spans: The segments, in order.
        held_bytes: The most that is held at one time.
        again: Share of the forward work that is done twice.
    """

    spans: tuple[Span, ...]
    held_bytes: int
    again: float


class NothingFitsError(ValueError):
    """No cut holds as little as asked for.

    Attributes:
        smallest_bytes: The least that a cut holds.
    """

    def __init__(self, smallest_bytes: int):
        self.smallest_bytes = smallest_bytes
        super().__init__(f"the least that can be held is {smallest_bytes} bytes")


def measured(blocks: Sequence[Block], spans: Sequence[Span]) -> Cut:
    """A cut with what it holds and costs."""
    inside = {number for first, last in spans for number in range(first, last)}
    plain = sum(block.kept_bytes for number, block in enumerate(blocks) if number not in inside)
    results = sum(blocks[last - 1].result_bytes for _, last in spans)
    largest = max((_interior(blocks, span) for span in spans), default=0)
    work = sum(block.work for block in blocks)
    again = sum(blocks[number].work for number in inside)
    return Cut(tuple(spans), plain + results + largest, again / work if work else 0.0)


def every(blocks: Sequence[Block], count: int) -> list[Span]:
    """Segments of ``count`` blocks each; a run of repeatable blocks that is too short makes a smaller one."""
    return [(start, min(start + count, last)) for first, last in runs(blocks) for start in range(first, last, count)]


def runs(blocks: Sequence[Block]) -> Iterator[Span]:
    """The longest stretches of repeatable blocks of one scope."""
    first: Optional[int] = None
    for number, block in enumerate(blocks):
        if first is not None and (not block.repeatable or block.scope != blocks[first].scope):
            yield first, number
            first = None
        if first is None and block.repeatable:
            first = number
    if first is not None:
        yield first, len(blocks)


def smallest(blocks: Sequence[Block]) -> Cut:
    """The cut that holds least; of those that hold the same, the one with the fewest segments."""
    best = measured(blocks, [])
    for limit in _limits(blocks, _CHEAP_LIMITS):
        best = min(
            best, measured(blocks, _fewest_kept(blocks, limit)), key=lambda cut: (cut.held_bytes, len(cut.spans))
        )
    return best


def covering(blocks: Sequence[Block]) -> list[Span]:
    """Segments that hold every repeatable block, and the least at one time; few where that is no worse."""
    found: list[Span] = []
    for first, last in runs(blocks):
        part = blocks[first:last]
        cuts = [measured(part, _packed(part, limit)) for limit in _limits(part, _CHEAP_LIMITS)]
        cuts = [cut for cut in cuts if cut.spans]
        spans = min(cuts, key=lambda cut: (cut.held_bytes, len(cut.spans))).spans if cuts else ((0, len(part)),)
        found += [(first + start, first + end) for start, end in spans]
    return found


def _packed(blocks: Sequence[Block], limit: int) -> list[Span]:
    """Blocks in segments as full as a limit allows; none where a block is too large by itself."""
    spans: list[Span] = []
    start, total = 0, 0
    for number, block in enumerate(blocks):
        if block.kept_bytes > limit:
            return []
        if total + block.kept_bytes > limit:
            spans.append((start, number))
            start, total = number, 0
        total += block.kept_bytes
    return [*spans, (start, len(blocks))]


def within(blocks: Sequence[Block], budget_bytes: int) -> Cut:
    """The cut with the least work done twice among those that hold no more than a budget.

    Args:
        blocks: The model's, in the order in which they are computed.
        budget_bytes: What activations may take.

    Raises:
        NothingFitsError: With the least that can be held.
    """
    plain = measured(blocks, [])
    if plain.held_bytes <= budget_bytes:
        return plain
    found: Optional[Cut] = None
    for limit in _limits(blocks, _LIMITS):
        spans = _least_work(blocks, limit, budget_bytes - limit)
        if spans is None:
            continue
        cut = measured(blocks, spans)
        if found is None or (cut.again, cut.held_bytes) < (found.again, found.held_bytes):
            found = cut
    if found is None:
        tightest = smallest(blocks)
        if tightest.held_bytes > budget_bytes:
            raise NothingFitsError(tightest.held_bytes)
        return tightest
    return found


def _interior(blocks: Sequence[Block], span: Span) -> int:
    return sum(block.kept_bytes for block in blocks[span[0] : span[1]])


def _limits(blocks: Sequence[Block], most: int) -> list[int]:
    """Sizes of a largest segment that are worth a try: those of segments of every length, thinned out."""
    sizes = set()
    for first, last in runs(blocks):
        for start in range(first, last):
            total = 0
            for number in range(start, last):
                total += blocks[number].kept_bytes
                sizes.add(total)
    ordered = sorted(sizes)
    if len(ordered) <= most:
        return ordered
    # Small segments matter most: the sizes tried lie closer together there.
    chosen = {ordered[round((len(ordered) - 1) * (number / (most - 1)) ** 2)] for number in range(most)}
    return sorted(chosen)


def _spans_to(blocks: Sequence[Block], last: int, limit: int) -> Iterator[int]:
    """First blocks of the segments that end before ``last`` and have no more than ``limit`` bytes inside."""
    total = 0
    for first in range(last - 1, -1, -1):
        block = blocks[first]
        total += block.kept_bytes
        if not block.repeatable or block.scope != blocks[last - 1].scope or total > limit:
            return
        yield first


def _fewest_kept(blocks: Sequence[Block], limit: int) -> list[Span]:
    """Segments below a limit with the least kept outside of them, and few of them."""
    best: list[tuple[int, int, Optional[int]]] = [(0, 0, None)]  # bytes, segments, where the last one begins
    for last in range(1, len(blocks) + 1):
        kept, count, _ = best[last - 1]
        options: list[tuple[int, int, Optional[int]]] = [(kept + blocks[last - 1].kept_bytes, count, None)]
        for first in _spans_to(blocks, last, limit):
            options.append((best[first][0] + blocks[last - 1].result_bytes, best[first][1] + 1, first))
        best.append(min(options, key=lambda option: option[:2]))
    spans: list[Span] = []
    last = len(blocks)
    while last:
        first_of = best[last][2]
        if first_of is not None:
            spans.append((first_of, last))
        last = last - 1 if first_of is None else first_of
    return spans[::-1]


def _least_work(blocks: Sequence[Block], limit: int, room_bytes: int) -> Optional[list[Span]]:
    """Segments below a limit that leave no more than ``room_bytes`` outside, with the least work; None if none do.

    Each place in the chain has a curve of bytes against work; points that another one beats are dropped.
    """
    curves: list[list[_Point]] = [[_Point(0, 0.0)]]
    for last in range(1, len(blocks) + 1):
        block = blocks[last - 1]
        points = [_Point(point.kept + block.kept_bytes, point.work, point) for point in curves[last - 1]]
        repeated = 0.0
        for first in _spans_to(blocks, last, limit):
            repeated += blocks[first].work
            points += [
                _Point(point.kept + block.result_bytes, point.work + repeated, point, (first, last))
                for point in curves[first]
            ]
        curves.append(_thinned([point for point in points if point.kept <= room_bytes]))
    point: Optional[_Point] = min(curves[-1], key=lambda each: (each.work, each.kept), default=None)
    if point is None:
        return None
    spans: list[Span] = []
    while point is not None:
        spans += [] if point.span is None else [point.span]
        point = point.former
    return spans[::-1]


class _Point(NamedTuple):
    """A way to cut the blocks up to some place: bytes outside of segments, work done twice, and how it came there."""

    kept: int
    work: float
    former: Optional[_Point] = None
    span: Optional[Span] = None


def _thinned(points: list[_Point]) -> list[_Point]:
    """The points that no other one beats in both bytes and work, a limited number of them."""
    kept: list[_Point] = []
    for point in sorted(points, key=lambda each: each[:2]):
        if not kept or point.work < kept[-1].work:
            kept.append(point)
    if len(kept) <= _POINTS:
        return kept
    return [kept[round(number * (len(kept) - 1) / (_POINTS - 1))] for number in range(_POINTS)]
