"""Results of a bench made by hand, for tests of what is concluded from them."""

from __future__ import annotations

from typing import Optional, Sequence

from tfvolta.bench.figures import figures
from tfvolta.bench.measured import Entry, Epoch, Lap

STEPS = 10
BATCH = 32


def lap(seconds: Sequence[float], loss: Optional[float] = 1.0, seed: int = 0, **after: object) -> Lap:
    """A process whose epochs took so long, and whose last loss is this."""
    epochs = tuple(
        Epoch(epoch=i + 1, seconds=s, train_seconds=s, steps=STEPS, loss=loss, place=0) for i, s in enumerate(seconds)
    )
    first = Epoch(epoch=0, seconds=3.0, train_seconds=3.0, steps=STEPS, loss=2.0)
    return Lap(seed=seed, start_seconds=5.0, warmup=(first,), epochs=epochs, after={"replicas": 1, **after})


def entry(name: str, *laps: Lap, batch: int = BATCH, workers: int = 1) -> Entry:
    """A contender with these processes."""
    return Entry(name=name, words=name, laps=laps, figures=figures(laps, batch, "images", workers))
