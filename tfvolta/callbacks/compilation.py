"""One compilation or trace of a fit, and what several of them say: how much, of which shapes, and whether they end."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Compilation:
    """A call in which a function was traced, or compiled by XLA, or both.

    Attributes:
        function: ``train`` or ``validation``.
        epoch: Number of the epoch, as Keras counts.
        step: Number of the call's first batch in the epoch.
        seconds: Duration of the call; tracing, compiling and the step itself.
        traced: Whether TensorFlow traced it.
        compiled: Whether XLA compiled in it.
        seen_by: ``trace``, ``shapes``, or ``time`` where only a slow call tells.
        shapes: New combinations of shapes in it.
    """

    function: str
    epoch: int
    step: int
    seconds: float
    traced: bool
    compiled: bool
    seen_by: str
    shapes: tuple[Shapes, ...] = ()

    @property
    def count(self) -> int:
        """How many compilations it stands for: one for each new combination of shapes."""
        return max(1, len(self.shapes)) if self.compiled else 0

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        shapes = [{name: list(shape) for name, shape in each.items()} for each in self.shapes]
        return {**dataclasses.asdict(self), "shapes": shapes}

    def __str__(self) -> str:
        what = " and ".join(word for word, is_so in (("traced", self.traced), ("compiled", self.compiled)) if is_so)
        shapes = f", {'; '.join(described(each) for each in self.shapes[:3])}" if self.shapes else ""
        likely = "likely " if self.seen_by == "time" else ""
        return f"{self.function}, epoch {self.epoch}, step {self.step}: {likely}{what}, {self.seconds:.2f} s{shapes}"


def described(shapes: Shapes) -> str:
    """Shapes in words: ``x (16, 64), y (16,)``."""
    return ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())


def changing(seen: Sequence[Shapes]) -> dict[str, list[tuple[int, ...]]]:
    """Parts of the batches that came in more than one shape, each shape once."""
    names = list(dict.fromkeys(name for each in seen for name in each))
    shapes = {name: list(dict.fromkeys(tuple(each[name]) for each in seen if name in each)) for name in names}
    return {name: found for name, found in shapes.items() if len(found) > 1}


def alarm(entries: Sequence[Compilation], seen: Sequence[Shapes], step_seconds: Optional[float]) -> str:
    """What compiles again and again, and the lines that end it.

    Args:
        entries: Compilations of the train function so far, the one that gives the alarm last.
        seen: Every combination of shapes so far; empty where they are not seen.
        step_seconds: A normal step; None where not known.
    """
    last, number = entries[-1], sum(entry.count for entry in entries)
    seconds = sum(max(0.0, entry.seconds - (step_seconds or 0.0)) for entry in entries)
    said = f"XLA compiled the train step {number} times ({seconds:.1f} s), last in epoch {last.epoch}, step {last.step}"
    changes = changing(seen)
    if not changes:
        why = "" if seen else ", by its time; the shapes of these data are not seen"
        return f"{said}{why}: give each batch the same shape, or set xla.jit: off."
    parts = "; ".join(f"{name} came as {_listed(shapes)}" for name, shapes in changes.items())
    return f"{said}: {parts}. {_fix(changes)}, or set xla.jit: off."


def _listed(shapes: list[tuple[int, ...]]) -> str:
    rest = f" and {len(shapes) - 4} more" if len(shapes) > 4 else ""
    return ", ".join(map(str, shapes[:4])) + rest


def _fix(changes: Mapping[str, list[tuple[int, ...]]]) -> str:
    rows_only = all(len({shape[1:] for shape in shapes}) == 1 for shapes in changes.values())
    if rows_only:
        return (
            "Batches differ in their rows: xla.remainder: drop or pad under tfvolta run, "
            "tfvolta.data.static_batches(dataset) or padded_batches(dataset, model) elsewhere"
        )
    name = next(name for name, shapes in changes.items() if len({shape[1:] for shape in shapes}) > 1)
    return (
        f"Pad {name} to one length or to a few: dataset.padded_batch(n, padded_shapes=...) or "
        "dataset.bucket_by_sequence_length(..., pad_to_bucket_boundary=True)"
    )
