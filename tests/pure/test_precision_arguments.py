"""Arguments of the precision API, refused before TensorFlow is needed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import tfvolta
from tfvolta import precision
from tfvolta.errors import ConfigError


def test_importing_it_imports_no_framework() -> None:
    code = (
        "import sys, tfvolta; tfvolta.precision.loss_scale_optimizer; tfvolta.audit.audit_model\n"
        "assert not {'tensorflow', 'keras', 'tf_keras'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tfvolta.precision is precision


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        precision.loss_scale_optimizer("adam", initial=0.0, growth_steps=1.5, clipnorm=-1.0, momentum=0.9)  # type: ignore[arg-type]
    assert [problem.where for problem in raised.value.problems] == [
        "optimizer",
        "initial",
        "growth_steps",
        "momentum",
        "clipnorm",
    ]


@pytest.mark.parametrize("fixed", [0.0, -1.0, float("inf"), float("nan"), True, "1024"])
def test_a_fixed_scale_is_a_positive_number(fixed: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        precision.loss_scale_optimizer(object(), fixed=fixed)
    assert "fixed" in [problem.where for problem in raised.value.problems]


def test_two_kinds_of_clipping_are_refused() -> None:
    with pytest.raises(ConfigError, match="one kind of clipping"):
        precision.loss_scale_optimizer(object(), clipnorm=1.0, clipvalue=0.5)


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan")])
def test_a_norm_is_positive(norm: float) -> None:
    with pytest.raises(ConfigError, match="a positive number"):
        precision.clip_by_global_norm([], norm)


@pytest.mark.parametrize("call", [precision.current_scale, precision.inner_optimizer, precision.keeps_ema])
def test_what_is_no_optimizer_is_refused(call: Any) -> None:
    with pytest.raises(ConfigError, match="an optimizer object of keras or tf_keras"):
        call("adam")
