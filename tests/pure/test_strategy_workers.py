"""What a plan says about several workers: who they are, how gradients travel between them, and what is refused."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

from tests.pure.test_strategy_plan import machine, make
from tfvolta.errors import Problem
from tfvolta.knobs.jit_decision import decide_jit, planned_situation, replica_fault
from tfvolta.outcome import Status
from tfvolta.strategy import communication, registry
from tfvolta.strategy.collectives import expected_packs
from tfvolta.strategy.history import Build

KIND = "multi_worker_mirrored"
MIB = 2**20


def environ(workers: int = 2, task: tuple[str, int] = ("worker", 0), **jobs: int) -> dict[str, str]:
    """What a launcher sets for one of some workers."""
    counts = {**({"worker": workers} if workers else {}), **jobs}
    cluster = {job: [f"{job}{index}:1234" for index in range(count)] for job, count in counts.items()}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TF_CONFIG", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK"):
        monkeypatch.delenv(name, raising=False)


def problems(config: Any, variables: Optional[dict[str, str]] = None, gpus: int = 4) -> list[Problem]:
    return registry.problems(config, machine(gpus), environ() if variables is None else variables)


def only(config: Any, variables: Optional[dict[str, str]] = None, gpus: int = 4) -> str:
    """The text of the one problem that a config has."""
    (problem,) = problems(config, variables, gpus)
    assert problem.expected and problem.received and problem.why and problem.fix
    return str(problem)


@pytest.mark.parametrize("gpus", (0, 1, 8))
@pytest.mark.parametrize("stack", ("keras3", "tf_keras", "keras2"))
@pytest.mark.parametrize(
    "section", ({}, {"pack_mb": 25}, {"timeout_seconds": 30.0}, {"implementation": "ring"}, {"implementation": "auto"})
)
def test_what_works_has_no_problem(gpus: int, stack: str, section: dict[str, Any]) -> None:
    config = make(KIND, communication=section)
    assert registry.problems(config, machine(gpus, stack=stack), environ()) == []


def test_nccl_is_for_gpus() -> None:
    config = make(KIND, communication={"implementation": "nccl"})
    assert problems(config) == []
    text = only(config, gpus=0)
    assert "NCCL reduces on GPUs only" in text and "implementation: auto" in text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (make(KIND, communication={"num_packs": 4}), ("does not count them", "pack_mb ~")),
        (make(KIND, communication={"implementation": "hierarchical_copy"}), ("collectives only", "nccl")),
        (make(KIND, communication={"implementation": "reduction_to_one_device"}), ("collectives only", "nccl")),
        (make(KIND, ["GPU:0", "GPU:1"]), ("every visible GPU", "devices.visible")),
        (make(KIND, strategy={"logical_cpus": 4}), ("one CPU of each process", "--workers 4")),
    ],
)
def test_what_the_kind_does_not_have_is_refused_with_what_stands_in(config: Any, words: tuple[str, ...]) -> None:
    text = only(config)
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ("nothing in the environment names others", "a model of its own", "tfvolta launch --workers 2")),
        (environ(1), ("1 worker in the cluster", "strategy.kind: mirrored")),
        (environ(2, ps=1), ("1 parameter servers", "strategy.kind: parameter_server")),
        (environ(2, ("evaluator", 0), evaluator=1), ("evaluator 0", "wait for collectives")),
    ],
)
def test_workers_that_are_not_there_are_refused(variables: dict[str, str], words: tuple[str, ...]) -> None:
    text = only(make(KIND), variables)
    for word in words:
        assert word in text


def test_a_chief_is_a_worker() -> None:
    assert problems(make(KIND), environ(1, ("chief", 0), chief=1)) == []


def test_a_cluster_that_cannot_be_read_is_left_to_the_setting_that_reads_it() -> None:
    assert problems(make(KIND), {"TF_CONFIG": "{"}) == []


def test_of_a_recorded_machine_no_workers_are_known() -> None:
    facts = machine(4, source="recorded")
    assert registry.problems(make(KIND), facts, {}) == []
    forecast = registry.forecast(make(KIND), facts)
    assert forecast.condition == "a launcher starts several workers" and "4 replicas" in forecast.message
    assert registry.replicas(make(KIND), facts) == 4


def test_replicas_are_those_of_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", environ(3)["TF_CONFIG"])
    assert registry.replicas(make(KIND), machine(4)) == 12
    assert registry.replicas(make(KIND), machine(0)) == 3
    assert registry.replicas(make(), machine(4)) == 4
    message = registry.forecast(make(KIND), machine(4)).message
    assert "3 workers with 4 replicas each" in message and "each replica gets 1/12 of it" in message


def test_the_forecast_names_the_limit_and_the_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", environ(2)["TF_CONFIG"])
    plain = registry.forecast_communication(make(KIND), machine(4))
    assert plain.status is Status.APPLIED and "NCCL" in plain.message and "a limit of 600 s" in plain.message
    asked = make(KIND, communication={"pack_mb": 25, "timeout_seconds": 90.0}, xla={"jit": "model"})
    forecast = registry.forecast_communication(asked, machine(4))
    assert (forecast.status, forecast.condition) == (Status.APPLIED, "")
    assert "packs of 25 MiB or more" in forecast.message and "a limit of 90 s" in forecast.message
    assert communication.timeout_seconds(make(KIND)) == 600.0


def test_packs_of_a_size_are_kept_by_a_compiled_step() -> None:
    forecast = registry.forecast_communication(make(communication={"pack_mb": 25}, xla={"jit": "model"}), machine(8))
    assert (forecast.status, forecast.condition) == (Status.APPLIED, "")
    assert "packs of 25 MiB or more" in forecast.message


@pytest.mark.parametrize(
    ("sizes", "size", "packs"),
    [
        ([], MIB, 0),
        ([5 * MIB, MIB], 0, 1),
        ([MIB, None, MIB], MIB, 1),
        ([MIB] * 4, MIB, 2),  # a pack of exactly the size is not full
        ([MIB + 4] * 4, MIB, 4),
        ([8 * MIB, 4, 4, 4], MIB, 1),  # from the last one on: the large one closes the pack, and nothing follows
        ([4, 4, 4, 8 * MIB], MIB, 2),
    ],
)
def test_packs_are_counted_as_tensorflow_makes_them(sizes: list[Optional[int]], size: int, packs: int) -> None:
    assert expected_packs(sizes, size) == packs


def test_xla_between_processes_is_for_gpus() -> None:
    assert replica_fault(["GPU:0"], 2) is None and replica_fault(["CPU:0"], 1) is None
    assert "between processes on CPU devices" in (replica_fault(["CPU:0"], 2) or "")
    assert "located in device CPU:1" in (replica_fault(["CPU:0", "CPU:1"], 4) or "")


def test_xla_is_planned_for_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", environ(2)["TF_CONFIG"])
    text = only(make(KIND, xla={"jit": "model"}), gpus=0)
    assert "xla.jit: model with 2 replicas" in text and "clustering" in text
    assert problems(make(KIND, xla={"jit": "model"}), gpus=1) == []
    decision = decide_jit("auto", planned_situation(machine(1), make(KIND)))
    assert decision.on and "Each of 2 replicas" in decision.reason


def test_a_second_strategy_beside_workers_is_a_clash() -> None:
    build = Build(("GPU:0",), "auto", workers=2)
    assert build.collective and not Build(("GPU:0",), "auto").collective
    assert str(build) == "2 workers over GPU:0 with auto"
    assert str(Build(("GPU:0", "GPU:1"), "auto", pack_mb=25)) == "mirrored over GPU:0, GPU:1 with auto, pack_mb 25"
