"""Lengths into buckets: the least padding, rows that hold the tokens of a batch, and the report."""

from __future__ import annotations

import itertools
import random

import pytest

from tfvolta.data.length_buckets import batch_sizes, choose_boundaries, make_report, pieces


@pytest.mark.parametrize(
    ("length", "most", "expected"),
    [(5, None, [5]), (5, 8, [5]), (8, 8, [8]), (9, 8, [8, 1]), (24, 8, [8, 8, 8])],
)
def test_pieces_hold_every_token_once(length: int, most: int, expected: list[int]) -> None:
    assert pieces(length, most) == expected


def padded(lengths: list[int], boundaries: tuple[int, ...]) -> int:
    return sum(next(size for size in boundaries if length <= size) for length in lengths)


@pytest.mark.parametrize("buckets", (1, 2, 3, 6))
def test_no_other_boundaries_pad_less(buckets: int) -> None:
    lengths = [random.Random(4).randint(1, 60) for _ in range(3)] + [3, 3, 3, 9, 17, 17, 40, 55, 56, 57]
    chosen = choose_boundaries(lengths, buckets)
    assert len(chosen) <= buckets and all(size % 8 == 0 for size in chosen) and max(lengths) <= chosen[-1]
    every = [(*rest, 64) for count in range(buckets) for rest in itertools.combinations(range(8, 64, 8), count)]
    assert padded(lengths, chosen) == min(padded(lengths, boundaries) for boundaries in every)


def test_no_lengths_are_no_boundaries() -> None:
    with pytest.raises(ValueError, match="received none"):
        choose_boundaries([], 4)


@pytest.mark.parametrize(
    ("tokens", "replicas", "expected"),
    [(1024, 1, (64, 16, 8)), (1024, 2, (64, 16, 8)), (500, 1, (24, 7, 3)), (500, 3, (24, 6, 3)), (8, 4, (4, 4, 4))],
)
def test_rows_hold_the_tokens_and_divide(tokens: int, replicas: int, expected: tuple[int, ...]) -> None:
    sizes = batch_sizes((16, 64, 128), tokens, replicas)
    assert sizes == expected and all(size % replicas == 0 for size in sizes)


def test_the_report_counts_padding_and_filled_rows() -> None:
    report = make_report([3, 8, 20], 8, (4, 8), (4, 2), {"tokens": 60, "shapes": 2}, True)
    # Pieces 3, 8, 8, 8, 4: two of up to 4 in one batch of 4 rows, three of up to 8 in two batches of 2 rows.
    assert (report.pieces, report.batches, report.shapes) == (5, 3, 2)
    assert (report.tokens, report.tokens_after) == (31, 4 * 4 + 2 * 2 * 8)
    assert report.to_json()["padding_before"] == pytest.approx(1 - 31 / 60)
    assert "3 sequences in 5 pieces, 2 shapes of batches (4 rows of 4, 2 rows of 8 tokens)" in report.sentence()
    assert "padding is 35 % of the tokens, it was 48 %. An epoch has 3 batches." in report.sentence()
