"""What is said of a plan that can be applied and is a bad one on this machine."""

from __future__ import annotations

import pytest

from tests.pure.machines import machine
from tfvolta.config import load_config
from tfvolta.plan import make_plan
from tfvolta.session.cautions import cautions


def _said(facts: str, *overrides: str) -> tuple[str, ...]:
    config = load_config("tfvolta:default", overrides=list(overrides))
    return cautions(make_plan(config, machine(facts), {}))


def test_float16_without_a_gpu_is_warned_of_with_the_line_that_helps() -> None:
    (text,) = _said("cpu")
    assert "no GPU" in text and "tfvolta:default:" in text
    advised = text.rpartition("--set ")[2]
    assert advised == "mixed_precision.policy=float32" and _said("cpu", advised) == ()


@pytest.mark.parametrize("facts", ["v100_16gb", "dgx1"])
def test_nothing_is_said_where_there_are_gpus(facts: str) -> None:
    assert _said(facts) == ()
