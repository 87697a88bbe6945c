"""Which batch size to try next: doubling until one does not fit, then halving the gap, in multiples of 8.

Where the first size is near the bound by an estimate, the next ones lie a stride away from it, then twice as far.
"""

from __future__ import annotations

from typing import Optional

from tfvolta.tune.trial import Ending, Trial

MULTIPLE = 8


class BatchSearch:
    """The search for the largest batch that fits.

    A batch that ends by time or by a crash bounds the search like one that runs out of memory, but is tried again once,
    since a neighbour on a shared machine can be the cause.

    Attributes:
        trials: What was tried, in order.
    """

    def __init__(self, start: int, most: Optional[int] = None, multiple: int = MULTIPLE, stride: Optional[int] = None):
        """Starts.

        Args:
            start: First size; brought to a multiple.
            most: Largest size to try; no bound when None.
            multiple: Sizes are multiples of this.
            stride: How far the second size is from the first; sizes double or halve when None.
        """
        self.trials: list[Trial] = []
        self._multiple = multiple
        self._stride = stride
        self._most = None if most is None else max(most // multiple * multiple, multiple)
        self._start = max(start // multiple * multiple, multiple)
        if self._most is not None:
            self._start = min(self._start, self._most)

    @property
    def largest(self) -> Optional[Trial]:
        """The largest that fits so far."""
        return max((each for each in self.trials if each.fits), key=lambda each: each.batch, default=None)

    @property
    def fastest(self) -> Optional[Trial]:
        """The one with most examples a second; of those within 1 % the smallest, which needs less of everything."""
        timed = [each for each in self.trials if each.fits and each.examples_per_second]
        if not timed:
            return None
        best = max(each.examples_per_second or 0.0 for each in timed)
        near = [each for each in timed if (each.examples_per_second or 0.0) >= 0.99 * best]
        return min(near, key=lambda each: each.batch)

    @property
    def bound(self) -> Optional[Trial]:
        """The smallest that does not fit: what limits the batch."""
        return min((each for each in self._settled() if each.ending.bounds), key=lambda each: each.batch, default=None)

    def next(self) -> Optional[int]:
        """The size to try now; None where the search is over."""
        if not self.trials:
            return self._start
        last = self.trials[-1]
        if last.ending is Ending.REFUSED or self._fails_alike():
            return None
        if self._is_doubtful(last):
            return last.batch
        fits, bound = self.largest, self.bound
        low = fits.batch if fits is not None else 0
        if bound is not None and bound.rows is not None:  # the data end there, and halving would find that late
            whole = bound.rows // self._multiple * self._multiple
            return whole if whole > low and all(each.batch != whole for each in self.trials) else None
        if bound is None:
            larger = low + self._reach(low)
            larger = larger if self._most is None else min(larger, self._most)
            return larger if larger > low else None
        if low == 0 and bound.batch > self._multiple:
            smaller = bound.batch - self._reach(bound.batch) if self._stride is not None else bound.batch // 2
            return max(smaller // self._multiple * self._multiple, self._multiple)
        middle = (low + bound.batch) // 2 // self._multiple * self._multiple
        return middle if low < middle < bound.batch else None

    def take(self, trial: Trial) -> None:
        """Takes how a trial ended."""
        self.trials.append(trial)

    def _reach(self, size: int) -> int:
        """How far to go from the largest that fits, or from the smallest that does not, without the other."""
        if self._stride is None:
            return size
        gone = abs(size - self._start)
        return max((gone + self._stride) // self._multiple * self._multiple, self._multiple)

    def _is_doubtful(self, trial: Trial) -> bool:
        """Whether a trial is to be repeated: its first crash or timeout."""
        same = [each for each in self.trials if each.batch == trial.batch]
        return trial.ending in (Ending.CRASH, Ending.TIMEOUT) and len(same) == 1 and self.largest is not None

    def _fails_alike(self) -> bool:
        """Whether nothing fits and the last two sizes crashed in the same words: the batch is not the cause."""
        words = [(each.ending, each.reason) for each in self.trials[-2:]]
        return self.largest is None and len(words) == 2 and words[0] == words[1] and words[0][0] is Ending.CRASH

    def _settled(self) -> list[Trial]:
        """The last trial of each size."""
        return list({each.batch: each for each in self.trials}.values())
