"""One config's throughput over another's, with the interval of a textbook: Student's t on logarithms of paired ratios.

Processes of one round run next to each other, so that what drifts on the machine is in both. With the three to six
pairs that a search can afford, a bootstrap's interval would be too narrow, and t's is not.
Source: Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013; the quantiles: Abramowitz and Stegun,
Handbook of Mathematical Functions (1964), table 26.10.
"""

from __future__ import annotations

import math
import statistics
from typing import Optional, Sequence

from tfvolta.tune.result import Ratio

_CONFIDENCE = 0.95
_LARGEST = 20.0  # logarithm that an end of an interval is cut at; two pairs that differ much have no bounds
_T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t.

    Args:
        freedom: Degrees of freedom, from 1 on; beyond 30 that of 30, which is a little wide.
    """
    return _T975[min(freedom, len(_T975)) - 1]


def paired(treated: Sequence[float], reference: Sequence[float]) -> Optional[Ratio]:
    """Throughput of ``treated`` over ``reference`` in pairs of one round.

    Args:
        treated: Rates above 0.
        reference: As many.

    Returns:
        The ratio; None with fewer than two pairs, of which no interval can be made.
    """
    logs = [math.log(own / other) for own, other in zip(treated, reference) if own > 0 and other > 0]
    if len(logs) < 2:
        return None
    mean = statistics.fmean(logs)
    wide = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(
        estimate=math.exp(mean),
        low=math.exp(max(mean - wide, -_LARGEST)),
        high=math.exp(min(mean + wide, _LARGEST)),
        confidence=_CONFIDENCE,
        pairs=len(logs),
        method="Student's t on logarithms of paired ratios",
    )
