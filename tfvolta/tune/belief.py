"""What is believed of every combination of settings: an expert's expectation, corrected by what was measured.

A Gaussian process over the axes' options: the gain of an option is the same in every combination, but for a smaller
part that two options have together. Its mean is the expectation; measuring a combination says most of those that share
its doubtful options. Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), chapter 2; the
additive kernel: Duvenaud, Nickisch and Rasmussen, Additive Gaussian Processes, NeurIPS 2011; the expected improvement:
Jones, Schonlau and Welch, Efficient Global Optimization of Expensive Black-Box Functions, J. Global Optim. 13 (1998).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Sequence

import numpy as np

from tfvolta.facts.schema import Facts
from tfvolta.tune.expectation import Surroundings, expected
from tfvolta.tune.model_traits import ModelTraits
from tfvolta.tune.space import Axis, Point

NOISE = 0.02  # of one measurement's logarithm, its own spread aside
_TOGETHER = 0.35  # of the doubt in two options, what they may have in common beyond their sum
_JIT, _POLICY = "xla.jit", "mixed_precision.policy"
_FAILED = (-1.5, 0.7)  # what a combination is taken for that failed, and how surely: its neighbours may fail too


@dataclasses.dataclass(frozen=True)
class Seen:
    """A combination that was tried.

    Attributes:
        point: Which.
        gain: Logarithm of its throughput over the baseline's; None where it failed.
        noise: Standard deviation of that.
    """

    point: Point
    gain: Any = None
    noise: float = NOISE


class Belief:
    """Expectation and doubt about combinations."""

    def __init__(self, axes: Sequence[Axis], facts: Facts, traits: ModelTraits, given: Mapping[str, str]):
        """Asks the expert.

        Args:
            axes: What is searched.
            facts: Machine and stack.
            traits: Of the first trial.
            given: What the user's config has, by axis.
        """
        self._axes, self._keys = tuple(axes), [axis.key for axis in axes]
        self._facts, self._traits, self._given = facts, traits, given
        self._tables = [self._table(axis) for axis in self._axes]
        self.doubts = np.array([float(table[1].max(initial=0.0)) for table in self._tables])

    def mean(self, points: Any) -> Any:
        """Expected logarithm of the factor over the baseline, of points as an array of shape (count, axes)."""
        points = np.atleast_2d(points)
        compiled, half = self._states(points)
        total = np.zeros(len(points))
        for number, (gains, _) in enumerate(self._tables):
            total += gains[points[:, number], compiled, half]
        zero = self._at_baseline()
        return total - zero

    def after(self, seen: Sequence[Seen], points: Any) -> tuple[Any, Any]:
        """Mean and standard deviation at points, given what was seen.

        Args:
            seen: What was tried, the baseline among it.
            points: Of shape (count, axes).
        """
        points = np.atleast_2d(points)
        tried = np.array([each.point for each in seen])
        gains = np.array([_FAILED[0] if each.gain is None else each.gain for each in seen])
        noise = np.array([_FAILED[1] if each.gain is None else each.noise for each in seen])
        covariance = self._kernel(tried, tried) + np.diag(noise**2)
        factor = np.linalg.cholesky(covariance)
        cross = self._kernel(points, tried)
        weights = np.linalg.solve(factor.T, np.linalg.solve(factor, gains - self.mean(tried)))
        shrunk = np.linalg.solve(factor, cross.T)
        variance = self._variance(points) - (shrunk**2).sum(axis=0)
        return self.mean(points) + cross @ weights, np.sqrt(np.maximum(variance, 1e-12))

    def why(self, point: Point, since: Point) -> str:
        """What is expected of the options in which a point differs from another, in words."""
        compiled, half = (int(state[0]) for state in self._states(np.array([point])))
        said = []
        for number, axis in enumerate(self._axes):
            if point[number] != since[number]:
                here = self._here(bool(compiled), bool(half))
                what = expected(axis.key, self._value(axis, point[number]), here)
                label = axis.labels[point[number]] if point[number] else f"{axis.key} as given"
                said.append(f"{label}: {what.why}")
        return "; ".join(said)

    def _value(self, axis: Axis, option: int) -> str:
        words = axis.options[option]
        return words[0].partition("=")[2] if words else self._given.get(axis.key, "")

    def _here(self, compiled: bool, half: bool) -> Surroundings:
        return Surroundings(self._facts, self._traits, compiled, half)

    def _table(self, axis: Axis) -> tuple[Any, Any]:
        """Gain and doubt of each option, with and without XLA, in 32 and in 16 bits."""
        gains, doubts = (np.zeros((len(axis.options), 2, 2)) for _ in range(2))
        for option in range(len(axis.options)):
            for compiled in (0, 1):
                for half in (0, 1):
                    value = self._value(axis, option)
                    what = expected(axis.key, value, self._here(bool(compiled), bool(half)))
                    gains[option, compiled, half], doubts[option, compiled, half] = what.gain, what.doubt
        return gains, doubts

    def _states(self, points: Any) -> tuple[Any, Any]:
        """Whether XLA compiles, and whether layers compute in 16 bits, at each point."""
        compiled = np.full(len(points), int(bool(self._traits.compiled)))
        half = np.full(len(points), int(bool(self._traits.half)))
        for key, states, yes, no in (
            (_JIT, compiled, ("model",), ("off", "clustering")),
            (_POLICY, half, ("mixed_float16", "mixed_bfloat16"), ("float32",)),
        ):
            if key in self._keys:
                number = self._keys.index(key)
                for option, words in enumerate(self._axes[number].options):
                    value = words[0].partition("=")[2] if words else ""
                    if value in yes or value in no:
                        states[points[:, number] == option] = int(value in yes)
        return compiled, half

    def _at_baseline(self) -> float:
        point: Any = np.zeros((1, len(self._axes)), dtype=int)
        compiled, half = (int(state[0]) for state in self._states(point))
        return float(sum(gains[0, compiled, half] for gains, _ in self._tables))

    def _kernel(self, left: Any, right: Any) -> Any:
        """Covariance between points: of options that they share, alone and in pairs."""
        return self._covariance((left[:, None, :] == right[None, :, :]) * self.doubts**2)

    def _variance(self, points: Any) -> Any:
        return np.full(len(points), self._covariance(self.doubts[None, :] ** 2)[0])

    def _covariance(self, shared: Any) -> Any:
        """The second elementary symmetric polynomial, which is a sum of products of kernels, and so a kernel."""
        alone = shared.sum(axis=-1)
        pairs = (alone**2 - (shared**2).sum(axis=-1)) / 2
        largest = float((self.doubts**2).max(initial=1e-12))
        return alone + _TOGETHER**2 * pairs / largest


def improvement(mean: Any, deviation: Any, best: float) -> Any:
    """Expected improvement over the best so far, in the unit of the means."""
    ahead = (mean - best) / deviation
    density = np.exp(-(ahead**2) / 2) / math.sqrt(2 * math.pi)
    share = 0.5 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in np.ravel(ahead)]).reshape(ahead.shape))
    return (mean - best) * share + deviation * density
