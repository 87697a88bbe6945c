"""A session on a recorded machine, with knobs that need no TensorFlow: order, lateness, strictness, journal, undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from absl import logging

import tfvolta
from tests.pure.machines import machine
from tfvolta.config import load_config
from tfvolta.contradictions import JOURNAL, journal
from tfvolta.errors import ConfigError, EvidenceError, LateError, LateWarning, PlanError
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Closure, Moment, Phase
from tfvolta.session import Origin, Session

SECTIONS: dict[str, Any] = {
    "devices": {"allocator": "cuda_malloc_async", "gpu_thread_mode": "gpu_private", "gpu_threads": 2},
    "cudnn": {"workspace_limit_mb": 512},
}


def _session(
    tmp_path: Path, environ: dict[str, str], strict: bool = True, record: bool = True, **sections: Any
) -> Session:
    config = load_config(run={"directory": str(tmp_path / "runs"), "strict": strict}, **(sections or SECTIONS))
    return Session(config, machine("v100_16gb"), origin=Origin(record=record), environ=environ)


def _close(session: Session, monkeypatch: pytest.MonkeyPatch, *moments: Moment) -> None:
    """Makes some moments pass for a session."""
    monkeypatch.setattr(
        session.context, "closed", lambda moment: Closure(moment, "made so") if moment in moments else None
    )


def test_environment_is_set_journaled_recorded_and_undone(tmp_path: Path) -> None:
    environ = {"HOME": "/home/user"}
    session = _session(tmp_path, environ)
    session.enter(Phase.ENVIRONMENT)
    assert environ["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    assert environ["TF_GPU_THREAD_MODE"] == "gpu_private" and environ["TF_GPU_THREAD_COUNT"] == "2"
    assert journal(environ)["TF_CUDNN_WORKSPACE_LIMIT_IN_MB"] == "512"
    evidence = json.loads(Path(session.recorder.path).read_text())
    assert evidence["outcomes"]["allocator"]["applied_at"]
    assert all(session.undo().values())
    assert {name for name in environ if name != JOURNAL} == {"HOME"} and journal(environ) == {}


def test_a_setting_that_starts_tensorflow_is_applied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow's start, from inside a setting, enters the phases before it."""
    session = _session(tmp_path, {})
    steps = [step for step in session.plan.steps if step.knob.phase is Phase.ENVIRONMENT]
    applied: list[str] = []

    def apply(step: Any, context: Any) -> Outcome:
        applied.append(step.knob.name)
        if step is steps[0]:
            session.enter(Phase.ENVIRONMENT)
        if step is steps[1]:
            session.enter(Phase.STRATEGY)
        return Outcome(Status.APPLIED, "set")

    monkeypatch.setattr("tfvolta.session.session.apply_step", apply)
    session.enter(Phase.ENVIRONMENT)
    assert applied == [step.knob.name for step in steps] and set(session.endings) == set(applied)


def test_entering_twice_applies_once(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    session = _session(tmp_path, environ)
    session.enter(Phase.ENVIRONMENT)
    environ["TF_GPU_THREAD_MODE"] = "changed afterwards"
    session.enter(Phase.ENVIRONMENT)
    assert environ["TF_GPU_THREAD_MODE"] == "changed afterwards"


def test_every_late_setting_is_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ: dict[str, str] = {}
    session = _session(tmp_path, environ)
    _close(session, monkeypatch, Moment.CONTEXT_INITIALIZED)
    with pytest.raises(LateError) as caught:
        session.enter(Phase.ENVIRONMENT)
    text = str(caught.value)
    for key in ("devices.allocator", "devices.gpu_thread_mode", "devices.gpu_threads"):
        assert key in text
    assert "eager context" in text and all(problem.fix for problem in caught.value.problems)
    assert "TF_GPU_ALLOCATOR" not in environ, "what is late is not set: it would look applied"
    assert session.endings["allocator"].outcome.status is Status.LATE
    evidence = json.loads(Path(session.recorder.path).read_text())
    assert evidence["outcomes"]["gpu_thread_mode"]["status"] == "LATE"


def test_late_settings_warn_when_not_strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session(tmp_path, {}, strict=False)
    _close(session, monkeypatch, Moment.CONTEXT_INITIALIZED)
    with pytest.warns(LateWarning, match="gpu_thread_mode"):
        session.enter(Phase.ENVIRONMENT)


def test_outcomes_are_logged_through_absl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.get_absl_logger()
    monkeypatch.setattr(logger, "propagate", True)
    with caplog.at_level("DEBUG", logger="absl"):
        session = _session(tmp_path, {})
        session.enter(Phase.ENVIRONMENT)
    assert any("tfvolta: allocator" in record.getMessage() for record in caplog.records)


def test_a_refused_plan_leaves_evidence_and_nothing_set(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    with pytest.raises(PlanError):
        _session(tmp_path, environ, math={"tf32": True}, devices={"allocator": "cuda_malloc_async"})
    assert environ == {}
    (path,) = (tmp_path / "runs").glob("*/evidence.json")
    evidence = json.loads(path.read_text())
    assert evidence["status"] == "refused" and "math.tf32" in evidence["conflicts"][0]["where"]
    assert evidence["outcomes"]["allocator"]["status"] == "PENDING"


def test_a_run_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in the way")
    with pytest.raises(EvidenceError, match="runs"):
        _session(tmp_path, {})


def test_a_run_directory_that_no_system_can_name(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="null byte"):
        Session(load_config(run={"directory": "a\0b"}, **SECTIONS), machine("v100_16gb"), environ={})


def test_without_a_record_no_file_is_left(tmp_path: Path) -> None:
    session = _session(tmp_path, {}, record=False)
    session.enter(Phase.ENVIRONMENT)
    session.measured("anything", {"value": 1})
    session.close()
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_keeps_the_first_end(tmp_path: Path) -> None:
    session = _session(tmp_path, {})
    session.close("failed", ValueError("the script's own"))
    session.close("completed")
    evidence = json.loads(Path(session.recorder.path).read_text())
    assert evidence["status"] == "failed" and evidence["error"]["message"] == "the script's own"


@pytest.mark.parametrize("wrong", ["configs/a.yaml", {"xla": {"jit": "auto"}}, None])
def test_what_is_no_config_is_refused_with_the_call_that_makes_one(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"tfvolta\.load_config"):
        tfvolta.build_strategy(wrong)
    with pytest.raises(ConfigError, match=r"tfvolta\.load_config"):
        tfvolta.build_callbacks(wrong)


def test_a_line_says_how_the_settings_ended(tmp_path: Path) -> None:
    session = _session(tmp_path, {})
    session.enter(Phase.ENVIRONMENT)
    assert "allocator UNVERIFIABLE" in session.ledger.summary()
