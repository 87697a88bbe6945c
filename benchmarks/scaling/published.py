"""The published V100 rows as data for the validation."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from typing import Any, Optional

from tfvolta.cost.fabric import NETWORKS_OF_MACHINES, Fabric, make_fabric
from tfvolta.cost.gradients import Gradients, unknown_gradients
from tfvolta.cost.models import gradients_of_model
from tfvolta.cost.reduction import Reduction
from tfvolta.facts.record import load

FOLDER = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Row:
    """One published throughput, and what it is predicted from.

    Attributes:
        table: Id of its table.
        family: ``resnet``, ``bert``, ``electra`` or ``other``.
        model: Name of the model, or of the table where its layers are not known.
        machine: Recorded machine.
        precision: ``fp32`` or ``amp``.
        gpus: GPUs altogether.
        base_gpus: Those of the run that it is predicted from.
        step_ms: One optimiser step of that run.
        base_passes: Passes of that step.
        batch: Examples of one GPU's pass.
        passes: Passes of a step of this row.
        measured: Scaling efficiency against the base, 0 to 1.
        reduction: How gradients travel, one pass a step.
        fit: Constant that is fitted on this row: ``spread``, ``machine_loss`` or None.
    """

    table: str
    family: str
    model: str
    machine: str
    precision: str
    gpus: int
    base_gpus: int
    step_ms: float
    base_passes: int
    batch: int
    passes: int
    measured: float
    reduction: Reduction
    gradients: Gradients
    fit: Optional[str]

    @property
    def fabric(self) -> Fabric:
        """What joins its GPUs."""
        return fabric_of(self.machine, self.gpus)

    @property
    def passes_ms(self) -> float:
        """What the passes of a step take in the run that it is predicted from."""
        return self.step_ms / self.base_passes * self.passes

    @property
    def loss_ms(self) -> float:
        """How much longer a published step of this row is."""
        return self.passes_ms * (1.0 / self.measured - 1.0)


@functools.cache
def fabric_of(machine: str, gpus: int) -> Fabric:
    """So many GPUs in machines of one kind, each full where there are several."""
    facts = load(machine)
    inside = min(gpus, len(facts.gpus))
    return make_fabric(facts, inside, gpus // inside, NETWORKS_OF_MACHINES[machine])


def rows() -> list[Row]:
    """Every published row."""
    content = json.loads((FOLDER / "published_v100.json").read_text(encoding="utf-8"))
    return [_row(table, row) for table in content["tables"] for row in table["rows"]]


def _row(table: dict[str, Any], row: dict[str, Any]) -> Row:
    base_gpus, passes = row.get("base_gpus", 1), row.get("reduce_every", 1)
    base_passes = row.get("base_reduce_every", passes)
    compression = "fp16" if row["precision"] in table["fp16_gradients"] else "none"
    known = "model" in table
    return Row(
        table=table["id"],
        family=table["family"],
        model=table["model"] if known else table["id"],
        machine=table["machine"],
        precision=row["precision"],
        gpus=row["gpus"],
        base_gpus=base_gpus,
        step_ms=1e3 * row["batch"] * base_passes * base_gpus / row["base_throughput"],
        base_passes=base_passes,
        batch=row["batch"],
        passes=passes,
        measured=row["throughput"] / (row["base_throughput"] * row["gpus"] / base_gpus),
        reduction=Reduction("horovod", compression=compression, xla=table["xla"]),
        gradients=gradients_of_model(table["model"]) if known else unknown_gradients(table["parameters"]),
        fit=table["fit"],
    )
