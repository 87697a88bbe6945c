"""What a GPU does not have is refused before training, with its compute capability and the way out."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

import pytest

import tfvolta
from tests.pure.machines import machine
from tests.pure.recorded_context import H200, V100, RecordedContext
from tests.pure.recorded_context import machine as made
from tfvolta.cli.main import main
from tfvolta.config import load_config
from tfvolta.errors import ConfigError, LateError, PlanError
from tfvolta.facts.description import describe
from tfvolta.facts.schema import Gpu
from tfvolta.knobs.gpu_threads import data_threads
from tfvolta.knobs.registry import knob
from tfvolta.outcome import Status
from tfvolta.phase import Closure, Moment, Phase
from tfvolta.plan import make_plan
from tfvolta.session import Origin, Session

PASCAL = Gpu(index=0, name="Tesla P100", memory_mb=16280, compute_capability=(6, 0))
TURING = Gpu(index=0, name="Tesla T4", memory_mb=15360, compute_capability=(7, 5))
AMPERE = Gpu(index=0, name="NVIDIA A100", memory_mb=40960, compute_capability=(8, 0))
BFLOAT16 = {"policy": "mixed_bfloat16"}


def plan(facts: Any, **sections: Any) -> Any:
    return make_plan(load_config(**sections), facts, {})


def on(*gpus: Gpu) -> Any:
    """A machine with these GPUs and a TensorFlow that serves them."""
    name = "h200_x2" if gpus and gpus[0].has_bfloat16 else "v100_16gb"
    return machine(name, gpus=tuple(gpu.model_copy(update={"index": index}) for index, gpu in enumerate(gpus)))


def pretend(monkeypatch: pytest.MonkeyPatch, facts: Any) -> None:
    """Makes this process find another machine."""
    monkeypatch.setattr("tfvolta.facts.probe.probe", lambda stack=None: facts)


# -- bfloat16


@pytest.mark.parametrize("name", ["v100_16gb", "dgx1", "dgx2"])
@pytest.mark.parametrize("strict", [True, False])
def test_bfloat16_is_refused_on_volta(name: str, strict: bool) -> None:
    with pytest.raises(PlanError) as caught:
        plan(machine(name), mixed_precision=BFLOAT16, run={"strict": strict}).check()
    assert isinstance(caught.value, ValueError)
    assert "compute capability 7.0" in str(caught.value)
    assert "mixed_float16 (loss scaling comes with it)" in str(caught.value)


@pytest.mark.parametrize(("gpu", "capability"), [(PASCAL, "6.0"), (TURING, "7.5")])
def test_bfloat16_is_refused_below_8_0(gpu: Gpu, capability: str) -> None:
    with pytest.raises(PlanError, match=f"compute capability {capability}"):
        plan(made(gpu), mixed_precision=BFLOAT16).check()


@pytest.mark.parametrize("gpu", [AMPERE, H200, None])
def test_bfloat16_is_accepted_where_it_exists_or_no_gpu_is(gpu: Any) -> None:
    plan(on(gpu) if gpu else machine("cpu"), mixed_precision=BFLOAT16).check()


def test_bfloat16_on_a_machine_of_two_kinds_of_gpu() -> None:
    for both, good in ((on(AMPERE, V100), 0), (on(V100, AMPERE), 1)):
        with pytest.raises(PlanError, match=re.escape(V100.name)):
            plan(both, mixed_precision=BFLOAT16).check()
        found = plan(both, mixed_precision=BFLOAT16, devices={"visible": [good]}).conflicts
        assert not [problem for problem in found if "mixed_precision" in problem.where]


def test_bfloat16_by_an_explicit_override_works_and_is_reported() -> None:
    accepted = plan(machine("v100_16gb"), mixed_precision={**BFLOAT16, "allow_bfloat16_emulation": True})
    accepted.check()
    (step,) = [step for step in accepted.steps if step.knob.name == "retrofit"]
    assert "7.0" in step.forecast.message and "allow_bfloat16_emulation" in step.forecast.message
    assert "loss_scale" not in {step.knob.name for step in accepted.steps}


def test_bfloat16_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    words = ["plan", "--facts", "v100_16gb", "--set", "mixed_precision.policy=mixed_bfloat16"]
    assert main(words) == 2
    assert "compute capability 7.0" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--set", "mixed_precision.allow_bfloat16_emulation=true"]) == 0
    assert "allow_bfloat16_emulation" in " ".join(capsys.readouterr().out.split())
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('ran')")
    words[0] = "run"
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, machine("v100_16gb"))
        assert main(["run", *words[3:], "--directory", str(tmp_path / "runs"), str(script)]) == 2
    assert "compute capability 7.0" in capsys.readouterr().err


def test_bfloat16_by_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, machine("v100_16gb"))
    with pytest.raises(PlanError, match=r"compute capability 7\.0"):
        tfvolta.callbacks.MixedPrecision("mixed_bfloat16")
    with pytest.raises(PlanError, match="mixed_float16"):
        tfvolta.callbacks.MixedPrecision("mixed_bfloat16", strict=False)
    tfvolta.callbacks.MixedPrecision("mixed_bfloat16", allow_bfloat16_emulation=True)
    tfvolta.callbacks.MixedPrecision("mixed_float16")


def test_bfloat16_by_a_strategy(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    pretend(monkeypatch, machine("dgx1"))
    config = load_config(run={"directory": str(tmp_path)}, mixed_precision=BFLOAT16)
    with pytest.raises(PlanError, match=r"compute capability 7\.0"):
        tfvolta.build_strategy(config)
    with pytest.raises(PlanError, match=r"compute capability 7\.0"):
        tfvolta.build_callbacks(config)


# -- TensorFloat-32


@pytest.mark.parametrize("gpu", [PASCAL, V100, TURING])
def test_tf32_is_not_available_whatever_the_switch_says(gpu: Gpu) -> None:
    capability = ".".join(map(str, gpu.compute_capability))
    with pytest.raises(PlanError, match="TF32: not available on this GPU") as caught:
        plan(made(gpu), math={"tf32": True}).check()
    assert f"compute capability {capability}" in str(caught.value)
    context = RecordedContext(load_config(math={"tf32": False}), made(gpu))
    for switch in (True, False):
        context.tensorflow.tf32 = switch
        outcome = knob("tf32").verify(switch, context)
        assert outcome.status is Status.NOT_APPLICABLE
        assert outcome.message.startswith("TF32: not available on this GPU")
        assert outcome.observed["switch"] is switch
    assert "TF32: not available on this GPU" in "\n".join(describe(made(gpu)))


@pytest.mark.parametrize("gpu", [AMPERE, H200])
def test_tf32_is_available_from_ampere_on(gpu: Gpu) -> None:
    plan(on(gpu), math={"tf32": True}).check()
    assert "TF32: yes" in "\n".join(describe(on(gpu)))


def test_tf32_forbidden_on_volta_is_no_error() -> None:
    accepted = plan(machine("v100_16gb"), math={"tf32": False})
    accepted.check()
    assert [step.forecast.status for step in accepted.steps] == [Status.NOT_APPLICABLE]


# -- GPU threads


@pytest.mark.parametrize(
    ("cores", "gpus", "left"), [(80, 8, 56), (8, 1, 5), (4, 1, 1), (2, 8, 1), (2, 0, 2), (1, 1, 1)]
)
def test_threads_left_to_the_input(cores: int, gpus: int, left: int) -> None:
    assert data_threads(cores, gpus) == left
    if gpus:
        facts = made(V100, gpus)
        facts = facts.model_copy(update={"cpu": facts.cpu.model_copy(update={"cores": cores})})
        message = knob("gpu_thread_mode").forecast("gpu_private", facts, load_config()).message
        assert f"is {left} thread{'s' * (left > 1)}" in message


@pytest.mark.parametrize(
    "devices",
    [
        {"gpu_thread_mode": "private"},
        {"gpu_thread_mode": ""},
        {"gpu_thread_mode": "GPU_PRIVATE"},
        {"gpu_thread_mode": "gpu_private", "gpu_threads": 0},
        {"gpu_thread_mode": "gpu_private", "gpu_threads": -2},
        {"gpu_thread_mode": "gpu_private", "gpu_threads": 2.5},
        {"gpu_thread_mode": "gpu_private", "gpu_threads": "two"},
    ],
)
def test_illegal_modes_and_counts(devices: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"devices\.gpu_thread") as caught:
        load_config(devices=devices)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("mode", ["gpu_private", "gpu_shared"])
@pytest.mark.parametrize("start", ["before", "after"])
def test_threads_before_and_after_tensorflow_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, mode: str, start: str
) -> None:
    environ: dict[str, str] = {}
    config = load_config(run={"directory": str(tmp_path)}, devices={"gpu_thread_mode": mode, "gpu_threads": 2})
    session = Session(config, machine("v100_16gb"), origin=Origin(record=False), environ=environ)
    closed = {Moment.CONTEXT_INITIALIZED} if start == "after" else set()
    monkeypatch.setattr(
        session.context, "closed", lambda moment: Closure(moment, "made so") if moment in closed else None
    )
    if start == "before":
        session.enter(Phase.ENVIRONMENT)
        assert environ["TF_GPU_THREAD_MODE"] == mode and environ["TF_GPU_THREAD_COUNT"] == "2"
        return
    with pytest.raises(LateError, match="before the first tensor"):
        session.enter(Phase.ENVIRONMENT)
    assert "TF_GPU_THREAD_MODE" not in environ and "TF_GPU_THREAD_COUNT" not in environ
    assert {ending.outcome.status for ending in session.endings.values()} == {Status.LATE}
    assert "TF_GPU_THREAD_MODE" not in os.environ
