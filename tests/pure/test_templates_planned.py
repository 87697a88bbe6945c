"""Every template in configs/ can be applied on the machine that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pure.machines import machine
from tfvolta.config import load_config
from tfvolta.outcome import Status
from tfvolta.plan import make_plan

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MACHINES = {
    "cpu": ("cpu",),
    "default": ("cpu", "v100_16gb", "dgx1", "dgx2", "h200_x2"),
    "dgx1": ("dgx1",),
    "dgx2": ("dgx2",),
    "h200": ("h200_x2",),
    "h200_x2": ("h200_x2",),
    "v100_16gb": ("v100_16gb",),
    "v100_32gb": ("v100_16gb", "dgx1"),
}


def test_every_template_is_here() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == set(MACHINES)


@pytest.mark.parametrize("stack", ["keras3", "tf_keras", "keras2"])
@pytest.mark.parametrize(("config", "name"), [(config, name) for config, names in MACHINES.items() for name in names])
def test_plans_without_refusal_on_every_stack(config: str, name: str, stack: str) -> None:
    plan = make_plan(load_config(CONFIGS / f"{config}.yaml"), machine(name, stack=stack), {})
    assert plan.refusals == (), [str(problem) for problem in plan.refusals]
    assert plan.steps
    for step in plan.steps:
        assert step.forecast.message
        assert step.forecast.status is not Status.NO_EFFECT or step.forecast.condition
