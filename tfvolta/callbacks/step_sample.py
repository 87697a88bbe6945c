"""A bounded sample of single step times, for the distribution and the course that a report draws."""

from __future__ import annotations

import random
from typing import Any, Sequence

MOST_POINTS = 512


def step_sample(step_seconds: Sequence[float], most: int = MOST_POINTS) -> dict[str, Any]:
    """Step times in their order, all of them or as many as are kept.

    They are drawn at random without replacement, from a fixed seed: every n-th step would see all or none of what
    happens every n-th step, such as a checkpoint.

    Args:
        step_seconds: Single step times, in seconds, in their order.
        most: How many are kept.

    Returns:
        ``of``, the number of all, ``places``, the place of each kept one among them, and ``seconds`` with six digits.
    """
    number = len(step_seconds)
    places = list(range(number)) if number <= most else sorted(random.Random(0).sample(range(number), most))
    return {"of": number, "places": places, "seconds": [float(f"{step_seconds[place]:.6g}") for place in places]}
