"""What a plan says about Horovod, on machines and under launchers that are not here."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tests.pure.recorded_context import H200, RecordedContext, machine
from tfvolta.config.schema import Config
from tfvolta.errors import PlanError
from tfvolta.facts.schema import Facts, HorovodBuild, TensorFlowBuild
from tfvolta.knobs.jit_decision import HOROVOD_FAULT, decide_jit, planned_situation
from tfvolta.outcome import Status
from tfvolta.plan import make_plan
from tfvolta.strategy import horovod_knobs, horovod_start, registry
from tfvolta.strategy.horovod_start import gpu_of

RANKS = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"}


def make(communication: Any = None, **sections: Any) -> Config:
    strategy = {"kind": "horovod", **sections.pop("strategy", {})}
    content = {"strategy": strategy, **sections}
    return Config.model_validate(content if communication is None else {**content, "communication": communication})


def live(gpus: int = 0, horovod: bool = True) -> Facts:
    """This machine, with a Horovod that fits."""
    build = HorovodBuild(version="0.28.1", tensorflow="2.15.1") if horovod else None
    facts = machine(H200, gpus)
    return facts.model_copy(
        update={"source": "live", "horovod": build, "tensorflow": TensorFlowBuild(version="2.15.1", cuda_version="12")}
    )


def texts(config: Config, facts: Facts, environ: dict[str, str]) -> list[str]:
    return [str(problem) for problem in registry.problems(config, facts, environ)]


def test_ranks_of_a_launcher_and_a_fitting_build_are_no_problem() -> None:
    config = make({"pack_mb": 8, "hierarchical": True, "cycle_time_ms": 2.0, "groups": 4, "implementation": "nccl"})
    assert texts(config, live(2), RANKS) == []


def test_a_recorded_machine_is_not_asked_for_launcher_or_build() -> None:
    elsewhere = live(2, horovod=False).model_copy(update={"source": "recorded elsewhere"})
    assert texts(make(), elsewhere, {}) == []
    forecast = registry.forecast(make(), elsewhere)
    assert forecast.status is Status.APPLIED
    assert "on a GPU of its own" in forecast.message and "number of ranks times as large" in forecast.message


def test_per_rank_and_global_batch_stand_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in RANKS.items():
        monkeypatch.setenv(name, value)
    message = registry.forecast(make(), live()).message
    assert "4 ranks" in message and "each rank's own" in message and "4 x batch_size" in message


def test_absent_and_alone_come_at_once() -> None:
    first, second = texts(make(), live(horovod=False), {})
    assert "it is not installed" in first
    assert "one process: nothing in the environment names others" in second and "horovodrun -np 2" in second


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (make(strategy={"devices": ["GPU:0"]}), ("each rank has one GPU", "remove devices")),
        (make(strategy={"logical_cpus": 2}), ("more of them are more processes", "horovodrun -np 2")),
        (make({"implementation": "ring"}), ("Horovod reduces with what it was built with", "implementation: auto")),
        (make({"implementation": "hierarchical_copy"}), ("hierarchical: true",)),
        (make({"implementation": "nccl"}), ("NCCL reduces on GPUs only",)),
        (make({"num_packs": 4}), ("does not count packs", "pack_mb")),
        (make({"timeout_seconds": 60.0}), ("no limit for one collective", "watchdog.stall_seconds")),
        (make(xla={"jit": "model"}), ("No registered 'HorovodAllreduce' OpKernel", "xla.jit: clustering")),
    ],
)
def test_what_horovod_does_not_have_is_refused_with_what_stands_in(config: Config, words: tuple[str, ...]) -> None:
    (text,) = texts(config, live(), RANKS)
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("kind", "key", "value", "words"),
    [
        ("mirrored", "hierarchical", True, "implementation: hierarchical_copy"),
        ("mirrored", "cycle_time_ms", 2.0, "pack_mb sizes the packs"),
        ("mirrored", "groups", 4, "num_packs with implementation nccl"),
        ("multi_worker_mirrored", "hierarchical", True, "nccl.algorithm: Tree"),
        ("multi_worker_mirrored", "groups", 4, "pack_mb ~ bytes of all gradients / groups"),
        ("one_device", "groups", 4, "reduces no gradients"),
    ],
)
def test_what_only_horovod_has_is_refused_elsewhere(kind: str, key: str, value: Any, words: str) -> None:
    config = Config.model_validate({"strategy": {"kind": kind}, "communication": {key: value}})
    assert any(words in text for text in texts(config, machine(H200, 2), {}))


def test_a_section_of_its_own_belongs_to_its_kind() -> None:
    config = Config.model_validate({"strategy": {"kind": "mirrored"}, "horovod": {"autotune": True}})
    (text,) = texts(config, machine(H200, 2), {})
    assert "only Horovod has these settings" in text and "strategy.kind: horovod" in text


def test_xla_is_off_under_auto_with_the_reason() -> None:
    decision = decide_jit("auto", planned_situation(machine(H200, 2), make(xla={"jit": "auto"})))
    assert not decision.on and HOROVOD_FAULT in decision.reason


def test_dividing_by_less_than_one_before_the_sum_is_refused() -> None:
    plan = make_plan(make(horovod={"predivide_factor": 0.5}), live(), RANKS)
    assert any("overflows sooner" in str(problem) for problem in plan.conflicts)
    assert not make_plan(make(horovod={"predivide_factor": 1.0}), live(), RANKS).conflicts


def test_a_log_of_autotune_needs_autotune() -> None:
    plan = make_plan(make(horovod={"autotune_log": "tuned.csv"}), live(), RANKS)
    assert any("set horovod.autotune: true" in str(problem) for problem in plan.conflicts)


def ranks(local_rank: int, local_size: int = 4) -> Any:
    return types.SimpleNamespace(rank=local_rank, local_rank=local_rank, local_size=local_size)


def test_each_rank_has_the_gpu_of_its_number() -> None:
    assert [gpu_of(ranks(number), ["a", "b", "c", "d"]) for number in range(4)] == [0, 1, 2, 3]
    assert gpu_of(ranks(3), []) is None
    assert gpu_of(ranks(2), ["shown by the launcher"]) == 0


def test_more_ranks_than_gpus_are_refused() -> None:
    with pytest.raises(PlanError, match="4 GPUs for 4 ranks") as caught:
        gpu_of(ranks(2), ["a", "b"])
    assert "start 2 ranks on this machine" in str(caught.value)


class Devices:
    """``tf.config`` of a process with some GPUs."""

    def __init__(self, gpus: int) -> None:
        self.visible = [types.SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in range(gpus)]

    def get_visible_devices(self, kind: str) -> list[Any]:
        return list(self.visible)

    def set_visible_devices(self, device: Any, kind: str) -> None:
        self.visible = [device]


def pinned(monkeypatch: pytest.MonkeyPatch, gpus: int, started: bool = False) -> tuple[Devices, Any]:
    """The GPUs that rank 1 of 2 sees after its knob was applied, and how it ended."""
    seen = types.SimpleNamespace(rank=1, size=2, local_rank=1, local_size=2, controller="gloo", nccl=True)
    monkeypatch.setattr(horovod_start, "start", lambda config: seen)
    monkeypatch.setattr(horovod_knobs, "live_ranks", lambda: seen)
    context = RecordedContext(make(), machine(H200, gpus))
    context.tensorflow = types.SimpleNamespace(config=Devices(gpus), started=started)
    each = horovod_knobs.HorovodRank()
    each.apply(each.value(context.config), context)
    return context.tensorflow.config, each.verify("horovod", context)


def test_a_rank_is_left_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    devices, outcome = pinned(monkeypatch, 2)
    assert [device.name for device in devices.visible] == ["/physical_device:GPU:1"]
    assert outcome.status is Status.APPLIED and "Rank 1 of 2" in outcome.message


def test_too_late_to_choose_a_gpu_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    devices, outcome = pinned(monkeypatch, 2, started=True)
    assert len(devices.visible) == 2
    assert outcome.status is Status.LATE and "before the first tensor, layer or data set" in outcome.message


def test_without_gpus_a_rank_trains_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _, outcome = pinned(monkeypatch, 0)
    assert outcome.status is Status.APPLIED and "on the CPU" in outcome.message
