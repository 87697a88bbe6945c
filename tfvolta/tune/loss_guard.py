"""Whether training still does the same: the loss of a trial against that of the baseline.

While the search goes on there is one baseline, and the band is wide. The repeats at the end have a seed each; the band
is then a prediction interval from the baseline's losses (Student's t), or a share of their mean where that is wider.
Source: Hahn and Meeker, Statistical Intervals (1991), section 4.2.
"""

from __future__ import annotations

import math
import statistics
from typing import Optional, Sequence

from tfvolta.tune.ratio import student
from tfvolta.tune.result import LossBand
from tfvolta.tune.speed_trial import SpeedTrial

_SEARCH_SHARE = 0.2
_LEAST_SHARE = 0.02  # rounding in another order grows into so much within some hundred steps


def common_examples(trials: Sequence[SpeedTrial]) -> Optional[int]:
    """How many examples all of them have noted a loss for; None where there is no such number."""
    if not trials or any(not trial.losses for trial in trials):
        return None
    first = max(trial.losses[0][0] for trial in trials)
    last = min(trial.losses[-1][0] for trial in trials)
    return last if last >= first else None


def leaves(trial: SpeedTrial, baseline: SpeedTrial) -> str:
    """Why a trial of the search cannot win; empty where its loss is near the baseline's."""
    if any(not math.isfinite(loss) for _, loss in trial.losses):
        return "its loss is not finite"
    examples = common_examples([trial, baseline])
    if examples is None:
        return ""
    own, other = trial.loss_at(examples), baseline.loss_at(examples)
    if own is None or other is None or abs(own - other) <= _SEARCH_SHARE * abs(other):
        return ""
    return f"its loss is {own:.4g} over {examples} examples, the baseline's {other:.4g}: more than 20 % apart"


def band_of(baselines: Sequence[SpeedTrial], seeds: Sequence[int], examples: int) -> Optional[LossBand]:
    """The band of some processes of the baseline, each with its seed.

    Args:
        baselines: At least one.
        seeds: Theirs.
        examples: Over which losses are compared.
    """
    losses = [loss for loss in (trial.loss_at(examples) for trial in baselines) if loss is not None]
    if not losses or not all(math.isfinite(loss) for loss in losses):
        return None
    mean, count = statistics.fmean(losses), len(losses)
    wide = _LEAST_SHARE * abs(mean)
    if count > 1:
        wide = max(wide, student(count - 1) * statistics.stdev(losses) * math.sqrt(1 + 1 / count))
    return LossBand(
        low=mean - wide,
        high=mean + wide,
        examples=examples,
        seeds=tuple(seeds),
        method=f"95 % prediction interval (Student's t) of {count} processes of the baseline, 2 % of the mean at least",
    )
