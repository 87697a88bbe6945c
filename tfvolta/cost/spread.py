"""Waiting for the slowest GPU: what synchronous training loses although no byte is on its way.

Every step lasts as long as the pass of the slowest GPU. With times spread normally around their mean, the slowest of n
is expected at mean + spread * E(n), where E(n) is the expected largest of n standard normal values. Published runs on
several machines lose more than that, and not to communication: docs/estimate_scaling.md shows it from the tables
themselves.

Sources: Chen, Pan, Monga, Bengio, Jozefowicz, Revisiting Distributed Synchronous SGD (arXiv 1604.00981), on waiting
for the slowest worker; Sinha et al., Not All GPUs Are Created Equal (SC 2022, arXiv 2208.11035), on 8 % between V100
GPUs of one cluster.
"""

from __future__ import annotations

import functools
import math
import statistics

# Fitted once by least squares, on published rows in which communication is a small part, and checked on others and row
# by row with the row left out: benchmarks/scaling.
SPREAD = 0.022
MACHINE_LOSS = 0.05

_WIDTH = 10.0
_STEPS = 2000


@functools.cache
def expected_largest(count: int) -> float:
    """Expected largest of so many independent standard normal values: 0.56 of two, 1.42 of eight.

    Args:
        count: At least 1.
    """
    if count < 2:
        return 0.0
    normal = statistics.NormalDist()
    step = 2 * _WIDTH / _STEPS
    points = (-_WIDTH + step * number for number in range(_STEPS + 1))
    return step * sum(x * count * normal.pdf(x) * normal.cdf(x) ** (count - 1) for x in points)


def slowdown(gpus: int, machines: int, spread: float = SPREAD, machine_loss: float = MACHINE_LOSS) -> float:
    """By which factor the passes of a step last longer than one GPU's alone.

    Args:
        gpus: GPUs in each machine.
        machines: Machines; what is lost between them, waiting for their GPUs too, is in ``machine_loss``.
        spread: Standard deviation of a GPU's time for a pass, as a share of it.
        machine_loss: Share of the throughput that each doubling of the machines costs.
    """
    return (1.0 + spread * expected_largest(gpus)) / math.pow(1.0 - machine_loss, math.log2(machines))
