"""What a plan says about strategies and communication, on machines that are not here."""

from __future__ import annotations

from typing import Any

import pytest

from tfvolta.config.schema import Config
from tfvolta.errors import PlanError, Problem
from tfvolta.facts.schema import Cpu, Facts, Gpu, TensorFlowBuild
from tfvolta.outcome import Status
from tfvolta.strategy import communication, registry
from tfvolta.strategy.default import Default
from tfvolta.strategy.devices import Inventory, canonical, planned, short
from tfvolta.strategy.history import Build
from tfvolta.strategy.jit import jit_problem
from tfvolta.strategy.kind import describe_batch
from tfvolta.strategy.packing import expected_collectives

V100 = {"name": "Tesla V100-SXM2-32GB", "memory_mb": 32510, "compute_capability": (7, 0)}


def machine(gpus: int, **changes: Any) -> Facts:
    """A machine with so many V100s."""
    cards = tuple(Gpu(index=i, **V100) for i in range(gpus))
    return Facts(cpu=Cpu(cores=8, memory_mb=64000), gpus=cards, **changes)


def make(kind: str = "mirrored", devices: Any = "all", communication: Any = None, **sections: Any) -> Config:
    """A config with a strategy section."""
    strategy = {"kind": kind, "devices": devices, **sections.pop("strategy", {})}
    content = {"strategy": strategy, **sections}
    if communication is not None:
        content["communication"] = communication
    return Config.model_validate(content)


def problems(config: Config, gpus: int = 8, **changes: Any) -> list[Problem]:
    return registry.problems(config, machine(gpus, **changes))


def only(config: Config, gpus: int = 8, **changes: Any) -> str:
    """The text of the one problem that a config has."""
    (problem,) = problems(config, gpus, **changes)
    assert problem.expected and problem.received and problem.why and problem.fix
    return str(problem)


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        make("default"),
        make("one_device"),
        make("one_device", ["GPU:3"]),
        make(),
        make(devices=["GPU:1", "/gpu:0", "/device:GPU:7"]),
        make(communication={"implementation": "nccl", "num_packs": 4}),
        make(communication={"implementation": "nccl"}),
        make(communication={"implementation": "hierarchical_copy", "num_packs": 0}),
        make(communication={"implementation": "reduction_to_one_device"}),
        make(communication={}),
        make(communication={"pack_mb": 25}),
    ],
)
def test_what_works_on_a_dgx1_has_no_problem(config: Config) -> None:
    assert problems(config) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            make(communication={"implementation": "nccl", "pack_mb": 32}),
            ("CollectiveAllReduce", "implementation: auto", "num_packs: 3)"),
        ),
        (
            make(communication={"implementation": "reduction_to_one_device", "pack_mb": 32}),
            ("has no packs", "implementation: auto"),
        ),
        (make(communication={"timeout_seconds": 60.0}), ("threads of one process", "remove timeout_seconds")),
        (make(communication={"implementation": "ring"}), ("NCCL does it", "implementation: nccl")),
        (make(communication={"num_packs": 2}), ("CollectiveAllReduce", "implementation: nccl", "pack_mb ~")),
        (
            make(communication={"implementation": "reduction_to_one_device", "num_packs": 2}),
            ("has no packs", "implementation: nccl"),
        ),
        (make("default", communication={"implementation": "nccl"}), ("reduces no gradients", "kind: mirrored")),
        (make("one_device", communication={"num_packs": 2}), ("reduces no gradients", "kind: mirrored")),
        (make("default", ["GPU:1"]), ("leaves placing to TensorFlow", "kind: one_device")),
        (make("default", ["GPU:1", "GPU:2"]), ("kind: mirrored",)),
        (make(devices=["GPU:0", "GPU:8"]), ("received: GPU:8", "did you mean GPU:", "numbered from 0")),
        (make(devices=["GPU:0", "CPU:2"]), ("logical_cpus: 3",)),
        (make(devices=["GPU:0", "/gpu:0"]), ("GPU:0 more than once", "devices: [GPU:0]")),
        (
            make(devices=["GPU:0", "GPU:1", "GPU:2"], communication={"implementation": "hierarchical_copy"}),
            ("3 replicas", "left out", "devices: [GPU:0, GPU:1]", "implementation: nccl"),
        ),
    ],
)
def test_what_a_kind_does_not_have_is_refused_with_what_stands_in(config: Config, words: tuple[str, ...]) -> None:
    text = only(config)
    for word in words:
        assert word in text


def test_names_that_are_no_devices_are_refused() -> None:
    (problem,) = problems(make(devices=["GPU:0", "GPU1"]))
    assert "did you mean GPU:1?" in problem.fix
    (problem,) = problems(make(devices=[]))
    assert "devices: all" in problem.fix


def test_one_device_takes_one() -> None:
    (problem,) = problems(make("one_device", ["GPU:0", "GPU:1"]))
    assert "kind: mirrored" in problem.fix


def test_all_problems_come_at_once() -> None:
    config = make(
        devices=["GPU:9", "GPU:0", "GPU:0"],
        communication={"implementation": "ring", "num_packs": 8, "timeout_seconds": 1.0},
    )
    assert len(problems(config)) == 4


@pytest.mark.parametrize("odd", (3, 5, 7))
def test_hierarchical_copy_needs_an_even_number(odd: int) -> None:
    config = make(communication={"implementation": "hierarchical_copy"})
    assert "left out" in only(config, gpus=odd)
    assert problems(config, gpus=odd + 1) == []
    assert problems(config, gpus=1) == []


@pytest.mark.parametrize("reason", ("no gpu", "hidden", "cpu build"))
def test_nccl_on_cpu_devices_is_refused(reason: str) -> None:
    build = TensorFlowBuild(version="2.21.0") if reason == "cpu build" else None
    sections: dict[str, Any] = {"strategy": {"kind": "mirrored", "logical_cpus": 2}}
    sections["communication"] = {"implementation": "nccl", "num_packs": 2}
    if reason == "hidden":
        sections["devices"] = {"visible": []}
    config = Config.model_validate(sections)
    text = only(config, gpus=0 if reason == "no gpu" else 4, tensorflow=build)
    assert "hierarchical_copy" in text and "GPUs only" in text
    assert {"no gpu": "", "hidden": "hides every GPU", "cpu build": "without CUDA"}[reason] in text


def test_ring_on_cpu_devices_is_the_default() -> None:
    text = only(make(communication={"implementation": "ring"}, strategy={"logical_cpus": 2}), gpus=0)
    assert "implementation: auto" in text


def test_nccl_needs_whole_gpus() -> None:
    config = make(communication={"implementation": "nccl"})
    found = communication.mirrored_problems(config, ("GPU:0", "GPU:1"), Inventory(gpus=2, cpus=1, split=True))
    assert len(found) == 1 and "one logical device per GPU" in found[0].expected
    whole = Inventory(gpus=2, cpus=1)
    assert communication.mirrored_problems(config, ("GPU:0", "GPU:1"), whole) == []


def test_a_kind_that_is_not_registered_lists_those_that_are() -> None:
    text = only(make("central_storage"))
    for known in ("default", "one_device", "mirrored"):
        assert f"{known} (" in text
    with pytest.raises(PlanError, match="one of the kinds that this version has"):
        registry.find("central_storage")
    assert registry.replicas(make("central_storage"), machine(8)) == 1


def test_a_misspelt_kind_gets_a_suggestion() -> None:
    with pytest.raises(PlanError, match="did you mean mirrored"):
        registry.find("mirored")


def test_num_packs_has_its_arithmetic_where_packs_are_sized() -> None:
    found = [problem.fix for problem in problems(make("multi_worker_mirrored", communication={"num_packs": 4}))]
    assert len([fix for fix in found if "pack_mb ~ bytes of all gradients / num_packs" in fix]) == 1
    assert communication.pack_mb_for(25_600_000 * 4, 4) == 25
    assert communication.pack_mb_for(25_600_000 * 4, 0) == 1
    assert communication.pack_mb_for(10, 4) == 1
    assert communication.num_packs_for(25_600_000 * 4, 25) == 4
    assert communication.num_packs_for(10, 25) == 1


def test_registering_a_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="already registered by Default"):
        registry.register(Default())
    names = [kind.name for kind in registry.kinds()]
    assert names == sorted(set(names), key=names.index)
    for kind in registry.kinds():
        assert kind.description and "strategy.kind" in kind.keys


@pytest.mark.parametrize(
    ("config", "gpus", "count"),
    [
        (Config(), 8, 1),
        (make("one_device"), 8, 1),
        (make(), 8, 8),
        (make(), 1, 1),
        (make(), 0, 1),
        (make(strategy={"logical_cpus": 4}), 0, 4),
        (make(strategy={"logical_cpus": 4}), 2, 2),
        (make(devices=["GPU:0", "GPU:2"]), 8, 2),
    ],
)
def test_replicas(config: Config, gpus: int, count: int) -> None:
    assert registry.replicas(config, machine(gpus)) == count


def test_visible_gpus_are_those_that_count() -> None:
    config = Config.model_validate({"strategy": {"kind": "mirrored"}, "devices": {"visible": [2, 5]}})
    assert registry.replicas(config, machine(8)) == 2
    assert planned(config, machine(8)).names[:2] == ("GPU:0", "GPU:1")


def test_forecasts() -> None:
    assert "8 replicas" in registry.forecast(make(), machine(8)).message
    single = registry.forecast(make(), machine(0)).message
    assert "Nothing is mirrored (there is no GPU)" in single and "logical_cpus: 2" in single
    assert "7 of 8 GPUs stay idle" in registry.forecast(Config(), machine(8)).message
    assert "off under every strategy" in registry.forecast(make("one_device"), machine(8)).message
    mixed = registry.forecast(make(devices=["GPU:0", "CPU:0"]), machine(1)).message
    assert "GPU and CPU mixed" in mixed


def test_forecast_of_packing_depends_on_xla() -> None:
    packed = {"implementation": "nccl", "num_packs": 4}
    free = registry.forecast_communication(make(communication=packed), machine(8))
    assert (free.status, free.condition) == (Status.APPLIED, "XLA does not compile the train step")
    for jit in ("off", "clustering"):
        sure = registry.forecast_communication(make(communication=packed, xla={"jit": jit}), machine(8))
        assert (sure.status, sure.condition) == (Status.APPLIED, "")
    compiled = registry.forecast_communication(make(communication=packed, xla={"jit": "model"}), machine(8))
    assert compiled.status is Status.NO_EFFECT and "clustering or off" in compiled.message
    single = registry.forecast_communication(make(communication=packed), machine(1))
    assert single.status is Status.NO_EFFECT and single.condition
    assert registry.forecast_communication(make(), machine(1)).status is Status.NOT_APPLICABLE
    assert "NCCL" in registry.forecast_communication(make(), machine(2)).message


@pytest.mark.parametrize("stack", ("keras3", "tf_keras", "keras2"))
def test_jit_over_cpu_replicas_is_refused_on_every_stack(stack: str) -> None:
    config = make(strategy={"logical_cpus": 2}, xla={"jit": "model"})
    text = only(config, gpus=0, stack=stack)
    assert "strategy.kind: mirrored" in text and "xla.jit: model" in text
    assert "clustering" in text and "Trying to access resource" in text
    for jit in ("auto", "clustering", "off"):
        assert problems(make(strategy={"logical_cpus": 2}, xla={"jit": jit}), gpus=0, stack=stack) == []
    assert problems(make(xla={"jit": "model"}), gpus=0, stack=stack) == []


@pytest.mark.parametrize("stack", ("keras3", "tf_keras", "keras2"))
@pytest.mark.parametrize("gpus", (1, 2, 8))
def test_jit_over_gpu_replicas_is_compiled_in_each_of_them(stack: str, gpus: int) -> None:
    mixed = make(xla={"jit": "model"}, mixed_precision={"policy": "mixed_float16"})
    assert jit_problem(mixed, machine(gpus, stack=stack)) is None


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("GPU:0", "GPU:0"),
        ("gpu:1", "GPU:1"),
        ("/gpu:02", "GPU:2"),
        ("/device:CPU:1", "CPU:1"),
        ("TPU:0", None),
        ("", None),
    ],
)
def test_device_names(given: str, name: str | None) -> None:
    assert canonical(given) == name


def test_short_device_names() -> None:
    assert short("/job:localhost/replica:0/task:0/device:GPU:3") == "GPU:3"


def test_batches_are_described() -> None:
    assert describe_batch(1, 32) == "It gets the whole batch of 32."
    assert "each replica 8 examples" in describe_batch(4, 32)
    assert "does not divide by 4" in describe_batch(4, 30) and "28 or 32 would divide" in describe_batch(4, 30)
    assert "1/2 of it" in describe_batch(2)


def test_expected_operations() -> None:
    assert expected_collectives("nccl", 4, 10, 8).count == 32
    assert expected_collectives("nccl", 0, 10, 2).count == 20
    assert expected_collectives("nccl", None, 10, 2).packs == 1
    assert expected_collectives("hierarchical_copy", 4, 10, 2).count == 4
    assert expected_collectives("hierarchical_copy", 4, 10, 8).count == 12
    assert expected_collectives("reduction_to_one_device", None, 10, 8).count == 10
    assert expected_collectives("auto", None, 10, 8).count == 8


def test_only_collectives_over_several_devices_share_numbers() -> None:
    assert Build(("GPU:0", "GPU:1"), "auto").collective
    assert not Build(("GPU:0",), "auto").collective
    assert not Build(("GPU:0", "GPU:1"), "nccl", 2).collective
