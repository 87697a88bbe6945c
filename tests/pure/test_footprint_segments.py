"""Where a chain of blocks is cut: against cuts that were worked out by hand, and against all cuts there are."""

from __future__ import annotations

import itertools
import random
from typing import Iterator

import pytest

from tfvolta.footprint.segments import Block, Cut, NothingFitsError, covering, every, measured, smallest, within


def chain(count: int, kept: int = 1, result: int = 1, work: float = 1.0) -> list[Block]:
    return [Block(str(number), kept, result, work) for number in range(count)]


def all_cuts(blocks: list[Block]) -> Iterator[Cut]:
    """Every way to put blocks into segments or leave them plain."""
    count = len(blocks)
    for marks in itertools.product((0, 1, 2), repeat=count):  # plain, first of a segment, in the segment before
        spans: list[tuple[int, int]] = []
        fine = True
        for number, mark in enumerate(marks):
            if mark == 1:
                spans.append((number, number + 1))
            if mark == 2:
                fine = fine and bool(spans) and spans[-1][1] == number
                if fine:
                    spans[-1] = (spans[-1][0], number + 1)
        inside = all(
            blocks[n].repeatable and blocks[n].scope == blocks[first].scope
            for first, last in spans
            for n in range(first, last)
        )
        if fine and inside:
            yield measured(blocks, spans)


def test_a_plain_chain_holds_everything() -> None:
    assert measured(chain(10, 3), []) == Cut((), 30, 0.0)


def test_equal_blocks_are_cut_into_as_many_segments_as_each_has_blocks() -> None:
    cut = smallest(chain(100))
    assert cut.held_bytes == 20 and len(cut.spans) == 10 and cut.again == 1.0
    assert covering(chain(16)) == [(0, 4), (4, 8), (8, 12), (12, 16)]


def test_blocks_with_much_inside_are_segments_of_their_own() -> None:
    cut = smallest(chain(24, 16))
    assert cut.held_bytes == 24 + 16 and len(cut.spans) == 24


def test_every_counts_blocks_and_stops_at_what_cannot_be_repeated() -> None:
    blocks = chain(7)
    assert every(blocks, 3) == [(0, 3), (3, 6), (6, 7)]
    blocks[2] = Block("state", 1, 1, repeatable=False)
    assert every(blocks, 3) == [(0, 2), (3, 6), (6, 7)]
    blocks = [Block(str(n), 1, 1, scope=n // 4) for n in range(8)]
    assert every(blocks, 3) == [(0, 3), (3, 4), (4, 7), (7, 8)]


def test_a_budget_that_holds_everything_changes_nothing() -> None:
    assert within(chain(10, 3), 30).spans == ()


def test_a_budget_that_nothing_fits_names_the_smallest_that_does() -> None:
    blocks = chain(24, 16)
    with pytest.raises(NothingFitsError) as error:
        within(blocks, 39)
    assert error.value.smallest_bytes == 40
    assert within(blocks, 40).held_bytes == 40


def test_the_cheapest_blocks_are_repeated_first() -> None:
    blocks = [Block("dear", 10, 1, 100.0), Block("cheap", 10, 1, 1.0), Block("middle", 10, 1, 10.0)]
    # Plain blocks 0 and 2 keep 20; the segment of the middle one keeps 1 and brings back 10.
    assert within(blocks, 31).spans == ()
    found = within([blocks[0], blocks[2], blocks[1], blocks[1]], 32)
    assert found.held_bytes <= 32 and {n for span in found.spans for n in range(*span)} == {2, 3}


@pytest.mark.parametrize("seed", range(12))
def test_no_other_cut_is_better(seed: int) -> None:
    random.seed(seed)
    blocks = [
        Block(str(n), random.randint(1, 9), 1, random.randint(1, 5), random.random() > 0.15, n // 5) for n in range(7)
    ]
    cuts = list(all_cuts(blocks))
    least = min(cut.held_bytes for cut in cuts)
    assert smallest(blocks).held_bytes == least
    for budget in (least, least + 2, least + 5):
        best = min(cut.again for cut in cuts if cut.held_bytes <= budget)
        found = within(blocks, budget)
        assert found.held_bytes <= budget and found.again == pytest.approx(best)
