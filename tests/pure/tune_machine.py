"""A made-up machine for searches: trials whose rates follow a table of factors, without any process."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Callable, Mapping

from tfvolta.tune.candidates import Words
from tfvolta.tune.space import Axis, Space
from tfvolta.tune.speed_trial import Block, SpeedTrial

BASE_RATE = 1000.0
TRAITS: Mapping[str, Any] = {"kinds": {"Dense": 2}, "batch": 32, "compiled": False, "half": False}


@dataclasses.dataclass
class MadeUp:
    """Measures: the rate is that of the baseline times a factor for each word.

    Attributes:
        factors: By word; 1 where there is none.
        endings: How trials end that have a word, instead.
        losses: Mean loss by word; 0.5 where there is none.
        asked: What was measured, in order.
    """

    factors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    endings: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    losses: Mapping[str, float] = dataclasses.field(default_factory=dict)
    noise: float = 0.0
    asked: list[Words] = dataclasses.field(default_factory=list)

    def __call__(self, words: Words, seed: int, describe: bool, is_slow: Callable[[Any], bool]) -> SpeedTrial:
        self.asked.append(words)
        for word in words:
            if word in self.endings:
                ending: Any = self.endings[word][0]
                return SpeedTrial(ending, self.endings[word][1], seconds=5.0)
        chance = random.Random(f"{seed} {words}")
        rate = BASE_RATE
        loss = 0.5
        for word in words:
            rate *= self.factors.get(word, 1.0)
            loss = self.losses.get(word, loss)
        blocks = [Block(32 / (rate * (1 + chance.gauss(0, self.noise))), 1, 32) for _ in range(16)]
        points = tuple((32 * (number + 1), loss) for number in range(16))
        for count in range(1, len(blocks) + 1):
            if is_slow(blocks[:count]):
                return SpeedTrial("stopped", "slower", tuple(blocks[:count]), points[:count], seconds=5.0)
        return SpeedTrial("measured", "", tuple(blocks), points, seconds=10.0, traits=TRAITS if describe else {})


def space_of(*words: str) -> Space:
    """A space with an axis for each key of these words."""
    keys: dict[str, list[Words]] = {}
    for word in words:
        keys.setdefault(word.partition("=")[0], []).append((word,))
    return Space([Axis(key, ((), *options)) for key, options in keys.items()])
