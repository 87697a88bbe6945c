"""What would help: the same prediction with one setting changed."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator

from tfvolta.cost.fabric import Fabric
from tfvolta.cost.reduction import Reduction
from tfvolta.cost.scaling import Workload, predict

_PACKS_MB = (4, 8, 16, 32, 64, 128)
# A change that gains less is not worth a line.
_LEAST_POINTS = 0.05


@dataclasses.dataclass(frozen=True)
class Change:
    """One setting changed.

    Attributes:
        setting: The line of a config.
        gain_points: Efficiency gained, in percentage points.
        efficiency: With the change, 0 to 1.
        remark: What else it changes; empty for nothing.
    """

    setting: str
    gain_points: float
    efficiency: float
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        """The change as JSON values."""
        return {
            "setting": self.setting,
            "gain_points": self.gain_points,
            "efficiency_percent": 100.0 * self.efficiency,
            "remark": self.remark,
        }


def what_if(fabric: Fabric, workload: Workload, reduction: Reduction) -> list[Change]:
    """Changes that gain something, the largest gain first.

    Args:
        fabric: The GPUs of the prediction.
        workload: One GPU's pass and the gradients.
        reduction: The settings as they are.
    """
    before = predict(fabric, workload, reduction).efficiency
    found = []
    for setting, remark, changed in _changes(reduction, fabric):
        after = predict(fabric, workload, changed).efficiency
        found.append(Change(setting, 100.0 * (after - before), after, remark))
    best: dict[str, Change] = {}
    for change in found:
        key = change.setting.partition(":")[0]
        if change.gain_points >= _LEAST_POINTS and (key not in best or change.gain_points > best[key].gain_points):
            best[key] = change
    return sorted(best.values(), key=lambda change: -change.gain_points)


def _changes(reduction: Reduction, fabric: Fabric) -> Iterator[tuple[str, str, Reduction]]:
    """Settings, what else they change, and the reduction with them."""
    if reduction.compression != "fp16":
        changed = dataclasses.replace(reduction, compression="fp16")
        yield "communication.compression: fp16", "gradients are rounded to float16", changed
    for size in _PACKS_MB:
        changed = dataclasses.replace(reduction, pack_mb=float(size), num_packs=None)
        remark = "" if changed.overlaps == reduction.overlaps else "packs are reduced during the backward pass"
        yield f"communication.pack_mb: {size}", remark, changed
    if reduction.kind == "horovod" and fabric.machines > 1 and reduction.algorithm != "hierarchical":
        yield "communication.hierarchical: true", "", dataclasses.replace(reduction, algorithm="hierarchical")
    for factor in (2, 4):
        passes = factor * reduction.reduce_every
        changed = dataclasses.replace(reduction, reduce_every=passes)
        yield f"communication.reduce_every: {passes}", f"an update sees {factor} times as many examples", changed
