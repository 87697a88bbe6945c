"""A whole estimate: every number of GPUs, the algorithm at each, and what would help."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Optional, Sequence

from tfvolta.cost.accuracy import statement
from tfvolta.cost.choice import choose_in, order_sentence
from tfvolta.cost.fabric import Fabric, Network, make_fabric
from tfvolta.cost.reduction import Reduction
from tfvolta.cost.scaling import Point, Workload, predict
from tfvolta.cost.what_if import Change, what_if

if TYPE_CHECKING:
    from tfvolta.facts.schema import Facts


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What was asked, and what was predicted for it.

    Attributes:
        machine: Name of the machine, for a reader.
        network: What joins machines; None where one is enough.
        workload: One GPU's pass and the gradients.
        reduction: How gradients are reduced.
        points: One for each number of GPUs.
        algorithms: Number of GPUs and the sentence on the all-reduce, one for each kind of topology.
        changes: What would help on the largest number of GPUs.
    """

    machine: str
    network: Optional[Network]
    workload: Workload
    reduction: Reduction
    points: tuple[Point, ...]
    algorithms: tuple[tuple[int, str], ...]
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """The estimate as JSON values."""
        gradients = self.workload.gradients
        return {
            "machine": self.machine,
            "network": _network(self.network) if self.network is not None else None,
            "gradients": {
                "title": gradients.title,
                "parameters": gradients.parameters,
                "bytes": gradients.size,
                "structure": gradients.structure,
            },
            "pass_ms": self.workload.pass_ms,
            "batch": self.workload.batch,
            "settings": _settings(self.reduction),
            "points": [point.to_json() for point in self.points],
            "algorithm": [{"gpus": gpus, "reason": reason} for gpus, reason in self.algorithms],
            "what_if": [change.to_json() for change in self.changes],
            "error": statement(max(point.machines for point in self.points)),
        }


def fabric_for(facts: Facts, gpus: int, network: Optional[Network]) -> Fabric:
    """So many GPUs on machines like one, each machine full where one is not enough.

    Args:
        facts: The machine; it has GPUs.
        gpus: At most those of one machine, or a multiple of them.
        network: What joins machines.
    """
    inside = min(gpus, len(facts.gpus))
    return make_fabric(facts, inside, gpus // inside, network)


def make_estimate(
    facts: Facts,
    machine: str,
    gpus: Sequence[int],
    network: Optional[Network],
    workload: Workload,
    reduction: Reduction,
) -> Estimate:
    """Predicts every number of GPUs.

    Args:
        facts: The machine.
        machine: Its name, for a reader.
        gpus: Numbers of GPUs, as ``fabric_for`` takes them.
        network: What joins machines; needed where one is not enough.
        workload: One GPU's pass and the gradients.
        reduction: How gradients are reduced.
    """
    fabrics = [fabric_for(facts, count, network) for count in gpus]
    points = tuple(predict(fabric, workload, reduction) for fabric in fabrics)
    algorithms = []
    for fabric, point, after in zip(fabrics, points, [*fabrics[1:], None]):
        # The largest number of GPUs of each topology speaks for it.
        if fabric.ranks > 1 and (after is None or (fabric.machines == 1) != (after.machines == 1)):
            size = workload.gradients.parameters * reduction.bytes_each / max(1, point.timeline.messages)
            order = order_sentence(facts, fabric.gpus) if fabric.machines == 1 else ""
            algorithms.append((fabric.ranks, _algorithm(fabric, size, order, reduction)))
    several = any(fabric.machines > 1 for fabric in fabrics)
    last = fabrics[-1]
    changes = what_if(last, workload, reduction) if last.ranks > 1 else []
    return Estimate(
        machine=machine,
        network=network if several else None,
        workload=workload,
        reduction=reduction,
        points=points,
        algorithms=tuple(algorithms),
        changes=tuple(changes),
    )


def _algorithm(fabric: Fabric, size: float, order: str, reduction: Reduction) -> str:
    reason = choose_in(fabric, size, order).reason
    if reduction.algorithm != "auto":
        return f"{reduction.algorithm}, as asked; by time it would be: {reason}"
    return reason


def _network(network: Network) -> str:
    return f"{network.adapters} x {network.link.title} in each machine, {network.bus_gb_s:g} GB/s together"


def _settings(reduction: Reduction) -> dict[str, Any]:
    """Settings under the names that they have in a config; None where the kind's default holds."""
    return {
        "kind": reduction.kind,
        "pack_mb": reduction.pack_mb,
        "num_packs": reduction.num_packs,
        "compression": reduction.compression,
        "reduce_every": reduction.reduce_every,
        "cycle_time_ms": reduction.cycle_time_ms if reduction.kind == "horovod" else None,
        "xla": "on" if reduction.xla else "off",
        "algorithm": reduction.algorithm,
        "overlap": "with the backward pass" if reduction.overlaps else "none",
    }


def parameters_of_megabytes(megabytes: float) -> int:
    """Parameters of float32 gradients of so many millions of bytes; at least 1."""
    return max(1, round(megabytes * 1e6 / 4))
