"""What is decided about XLA before anything is traced."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pure.recorded_context import machine
from tfvolta.config.schema import Config
from tfvolta.conflicts import Request, find_conflicts
from tfvolta.knobs.jit_decision import HANGS, JitSituation, decide_jit

LSTM = f"lstm (LSTM): its graph holds a cuDNN branch; XLA has no kernel for it and {HANGS}"


def conflicts(**xla: Any) -> list[Any]:
    config = Config.model_validate({"xla": xla})
    return find_conflicts(Request(config, machine(), {}))


def test_a_compilation_that_hangs_is_refused_whatever_is_asked() -> None:
    situation = JitSituation("keras2", 1, obstacles=[LSTM], hangs=[LSTM])
    for asked in ("model", "auto"):
        decision = decide_jit(asked, situation)
        assert not decision.on and "cuDNN branch" in decision.reason
    assert "xla.jit: auto or off" in decide_jit("model", situation).fix
    # An obstacle that does not hang is tried where it is asked for: XLA says itself what it does not take.
    assert decide_jit("model", JitSituation("keras2", 1, obstacles=["table (StringLookup): strings"])).on


@pytest.mark.parametrize(("jit", "refused"), [("auto", False), ("model", False), ("off", True), ("clustering", True)])
def test_a_limit_needs_a_step_that_is_compiled_as_a_whole(jit: str, refused: bool) -> None:
    found = conflicts(jit=jit, compile_limit_seconds=60)
    assert [problem.where.rsplit(" ", 1)[-1] for problem in found] == ["xla.compile_limit_seconds"] * refused
    assert refused or conflicts(compile_limit_seconds=60)[0].received == "xla.jit: not given"


@pytest.mark.parametrize(
    ("drop", "remainder", "refused"),
    [(True, "drop", False), (False, "keep", False), (True, "pad", True), (True, "keep", True), (False, "drop", True)],
)
def test_two_keys_for_the_last_batch_must_agree(drop: bool, remainder: str, refused: bool) -> None:
    assert bool(conflicts(jit="auto", drop_remainder=drop, remainder=remainder)) is refused
