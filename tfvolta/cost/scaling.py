"""From one GPU's step to the step of many: the whole prediction for one number of GPUs."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from tfvolta.cost.fabric import Fabric
from tfvolta.cost.gradients import Gradients
from tfvolta.cost.reduction import Reduction, Timeline, reduce
from tfvolta.cost.spread import MACHINE_LOSS, SPREAD, slowdown


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes:
        gradients: What each step reduces.
        pass_ms: Forward and backward pass of one GPU, as a step of one GPU measures it.
        batch: Examples of one pass on one GPU; None where only times are asked for.
    """

    gradients: Gradients
    pass_ms: float
    batch: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Waiting:
    """The two constants of waiting for the slowest; see ``tfvolta.cost.spread``."""

    spread: float = SPREAD
    machine_loss: float = MACHINE_LOSS


FITTED = Waiting()


@dataclasses.dataclass(frozen=True)
class Point:
    """The prediction for one number of GPUs; all times are of one optimiser step.

    Attributes:
        gpus: GPUs altogether.
        machines: Machines that they are in.
        step_ms: One step: all of its passes, waiting and visible communication.
        passes_ms: What its passes take on one GPU.
        waiting_ms: Waiting for the slowest GPU.
        timeline: The reduction; ``exposed_ms`` of it is visible.
        efficiency: Throughput over that of as many single GPUs, 0 to 1.
        examples_per_second: All GPUs together; None without a batch size.
    """

    gpus: int
    machines: int
    step_ms: float
    passes_ms: float
    waiting_ms: float
    timeline: Timeline
    efficiency: float
    examples_per_second: Optional[float] = None

    def to_json(self) -> dict[str, Any]:
        """The point as JSON values."""
        return {
            "gpus": self.gpus,
            "machines": self.machines,
            "step_ms": self.step_ms,
            "communication_ms": self.timeline.busy_ms,
            "exposed_communication_ms": self.timeline.exposed_ms,
            "waiting_ms": self.waiting_ms,
            "messages": self.timeline.messages,
            "efficiency_percent": 100.0 * self.efficiency,
            "examples_per_second": self.examples_per_second,
        }


def predict(fabric: Fabric, workload: Workload, reduction: Reduction, waiting: Waiting = FITTED) -> Point:
    """The step of a number of GPUs from that of one.

    Args:
        fabric: The GPUs and what joins them.
        workload: One GPU's pass and the gradients.
        reduction: How gradients are reduced.
        waiting: Constants of waiting.
    """
    factor = slowdown(fabric.gpus, fabric.machines, waiting.spread, waiting.machine_loss)
    timeline = reduce(fabric, workload.gradients, reduction, factor * workload.pass_ms)
    passes_ms = workload.pass_ms * reduction.reduce_every
    step_ms = passes_ms * factor + timeline.exposed_ms
    rate = None
    if workload.batch is not None:
        rate = workload.batch * reduction.reduce_every * fabric.ranks / step_ms * 1e3
    return Point(
        gpus=fabric.ranks,
        machines=fabric.machines,
        step_ms=step_ms,
        passes_ms=passes_ms,
        waiting_ms=passes_ms * (factor - 1.0),
        timeline=timeline,
        efficiency=passes_ms / step_ms,
        examples_per_second=rate,
    )


def pass_ms_of(
    fabric: Fabric, gradients: Gradients, reduction: Reduction, step_ms: float, waiting: Waiting = FITTED
) -> float:
    """One GPU's pass from a step that was measured on several, by inverting ``predict``; 0 where none is that short.

    Args:
        fabric: The GPUs of the measurement.
        gradients: What it reduced.
        reduction: How.
        step_ms: One optimiser step of the measurement.
        waiting: Constants of waiting.
    """
    factor = slowdown(fabric.gpus, fabric.machines, waiting.spread, waiting.machine_loss)
    if not reduction.overlaps:
        exposed_ms = reduce(fabric, gradients, reduction, 0.0).exposed_ms
        return max(0.0, step_ms - exposed_ms) / (factor * reduction.reduce_every)
    low, high = 0.0, step_ms / factor
    while high - low > 1e-9 * step_ms:
        middle = (low + high) / 2
        longer = predict(fabric, Workload(gradients, middle), reduction, waiting).step_ms > step_ms
        low, high = (low, middle) if longer else (middle, high)
    return low
