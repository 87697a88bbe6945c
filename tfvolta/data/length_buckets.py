"""Lengths of sequences: how they fall into buckets, and what padding them costs."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any, Iterable, Mapping, Optional, Sequence


def pieces(length: int, max_tokens: Optional[int]) -> list[int]:
    """Lengths of the pieces of one sequence: full ones and the rest."""
    if max_tokens is None or length <= max_tokens:
        return [length]
    whole, rest = divmod(length, max_tokens)
    return [max_tokens] * whole + [rest] * (rest > 0)


def choose_boundaries(lengths: Iterable[int], buckets: int, multiple: int = 8) -> tuple[int, ...]:
    """Padded lengths, at most so many, for which the tokens of all padded sequences are fewest.

    Args:
        lengths: Length of each sequence.
        buckets: Most padded lengths, each of which XLA compiles once.
        multiple: Every padded length is a multiple of it.

    Raises:
        ValueError: There are no lengths.
    """
    counts = collections.Counter(math.ceil(max(1, length) / multiple) * multiple for length in lengths)
    sizes = sorted(counts)
    if not sizes:
        raise ValueError("lengths: expected at least one, received none")
    below = [0]
    for size in sizes:
        below.append(below[-1] + counts[size])
    # best[n]: fewest tokens for the n smallest sizes and the boundaries that reach it, with one bucket more each round.
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ()), *((math.inf, ()) for _ in sizes)]
    for _ in range(min(buckets, len(sizes))):
        best = [
            min(
                [best[end]]
                + [
                    (best[start][0] + sizes[end - 1] * (below[end] - below[start]), (*best[start][1], sizes[end - 1]))
                    for start in range(end)
                ]
            )
            for end in range(len(sizes) + 1)
        ]
    return best[-1][1]


def batch_sizes(boundaries: Sequence[int], tokens_per_batch: int, replicas: int = 1) -> tuple[int, ...]:
    """Rows of a batch in each bucket, so that all batches have about as many tokens.

    Multiples of 8 where there are as many, which Tensor Cores want, and of the number of replicas, which divide them.
    """
    step = math.lcm(8, replicas) if hasattr(math, "lcm") else 8 * replicas
    sizes = []
    for boundary in boundaries:
        rows = max(1, tokens_per_batch // boundary)
        unit = step if rows >= step else replicas
        sizes.append(max(unit, rows // unit * unit))
    return tuple(sizes)


@dataclasses.dataclass(frozen=True)
class SequenceReport:
    """What became of sequences.

    Attributes:
        boundaries: Padded length of each bucket.
        batch_sizes: Rows of a batch in each bucket.
        sequences: Sequences that were looked at.
        pieces: Pieces that they were split into.
        complete: Whether all sequences of an epoch were looked at.
        tokens: Tokens of these sequences.
        tokens_before: The same with the padding that they came with.
        tokens_after: The same with the padding that they have now, rows of no weight that fill batches included.
        shapes_before: Different shapes of batches that came.
        batches: Batches of an epoch; None where not known.
    """

    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    sequences: int
    pieces: int
    complete: bool
    tokens: int
    tokens_before: int
    tokens_after: int
    shapes_before: int
    batches: Optional[int]

    @property
    def shapes(self) -> int:
        """Different shapes of batches: each is compiled once."""
        return len(self.boundaries)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, with the shares of padding."""
        return {
            **{name: list(value) if isinstance(value, tuple) else value for name, value in self._fields().items()},
            "shapes": self.shapes,
            "padding_before": _padding(self.tokens, self.tokens_before),
            "padding_after": _padding(self.tokens, self.tokens_after),
        }

    def sentence(self) -> str:
        """What was done, in words."""
        before, after = _padding(self.tokens, self.tokens_before), _padding(self.tokens, self.tokens_after)
        split = f" in {self.pieces} pieces" if self.pieces != self.sequences else ""
        seen = "" if self.complete else " that were looked at"
        rows = ", ".join(f"{rows} rows of {size}" for rows, size in zip(self.batch_sizes, self.boundaries))
        epoch = "" if self.batches is None else f" An epoch has {self.batches} batches."
        return (
            f"{self.sequences} sequences{seen}{split}, {self.shapes} shape{'s' * (self.shapes != 1)} of batches ({rows}"
            f" tokens) in place of {self.shapes_before}; padding is {100 * after:.0f} % of the tokens, it was"
            f" {100 * before:.0f} %.{epoch}"
        )

    def _fields(self) -> Mapping[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def make_report(
    lengths: Sequence[int],
    max_tokens: Optional[int],
    boundaries: Sequence[int],
    sizes: Sequence[int],
    came: Mapping[str, int],
    complete: bool,
) -> SequenceReport:
    """Counts what a bucketing does to the sequences of these lengths.

    Args:
        lengths: Length of each sequence.
        max_tokens: Longer ones are split.
        boundaries: Padded length of each bucket, ascending.
        sizes: Rows of a batch in each bucket.
        came: ``tokens``, with padding, and ``shapes`` as the data came.
        complete: Whether these are all sequences of an epoch.
    """
    split = [piece for length in lengths for piece in pieces(length, max_tokens)]
    counts = collections.Counter(next(size for size in boundaries if piece <= size) for piece in split)
    batches = {size: math.ceil(counts[size] / rows) for size, rows in zip(boundaries, sizes)}
    return SequenceReport(
        boundaries=tuple(boundaries),
        batch_sizes=tuple(sizes),
        sequences=len(lengths),
        pieces=len(split),
        complete=complete,
        tokens=sum(lengths),
        tokens_before=came["tokens"],
        tokens_after=sum(batches[size] * size * rows for size, rows in zip(boundaries, sizes)),
        shapes_before=came["shapes"],
        batches=sum(batches.values()) if complete else None,
    )


def _padding(tokens: int, padded: int) -> float:
    return 0.0 if not padded else 1.0 - tokens / padded
