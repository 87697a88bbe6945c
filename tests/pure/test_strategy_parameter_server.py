"""Parameter servers at plan time: what is refused, what is forecast, how variables are split, and who is missing."""

from __future__ import annotations

import json
import socket
from typing import Any, Optional

import pytest

from tests.pure.test_strategy_plan import machine, make
from tfvolta.cluster import Cluster, resolve
from tfvolta.config.schema import Config
from tfvolta.errors import ClusterError
from tfvolta.knobs.jit_decision import decide_jit, planned_situation
from tfvolta.outcome import Status
from tfvolta.strategy import registry
from tfvolta.strategy.coordination import Coordination, present
from tfvolta.strategy.parameter_server import cluster_problems, limit_mb, serves, timeout_seconds
from tfvolta.strategy.serving import ChiefEnd, Served, completed, failed
from tfvolta.strategy.sharding import MIB, Placed, SizePartitioner, bytes_by_server, shard_count, wrongly_split

LIMIT = 128 * MIB
SERVER = "/job:ps/replica:0/task:{}/device:CPU:0"


def environ(jobs: dict[str, int], job: str = "chief", index: int = 0) -> dict[str, str]:
    """The environment of one task of a cluster."""
    port = iter(range(20000, 21000))
    cluster = {name: [f"127.0.0.1:{next(port)}" for _ in range(count)] for name, count in jobs.items()}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}


def cluster(jobs: dict[str, int], job: str = "chief", index: int = 0) -> Optional[Cluster]:
    return resolve(environ(jobs, job, index), make("parameter_server"))


def texts(config: Config, jobs: Optional[dict[str, int]] = None, job: str = "chief") -> list[str]:
    surroundings = {} if jobs is None else environ(jobs, job)
    return [str(problem) for problem in registry.problems(config, machine(1), surroundings)]


FULL = {"chief": 1, "worker": 2, "ps": 2}


def test_a_full_cluster_has_no_problem() -> None:
    assert texts(make("parameter_server"), FULL) == []
    assert texts(make("parameter_server", strategy={"shard_above_mb": 64}), FULL, "worker") == []


def test_one_process_is_told_how_to_start_several() -> None:
    (text,) = texts(make("parameter_server"))
    assert "one process" in text and "tfvolta launch --workers 2 --ps 1" in text


@pytest.mark.parametrize(
    ("jobs", "job", "missing"),
    [
        ({"chief": 1, "worker": 2}, "chief", ["no ps"]),
        ({"worker": 2, "ps": 1}, "worker", ["no chief"]),
        ({"chief": 1, "ps": 1}, "chief", ["no worker"]),
        ({"worker": 2}, "worker", ["no chief", "no ps"]),
        ({"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, "evaluator", ["task"]),
    ],
)
def test_what_a_cluster_lacks_is_named(jobs: dict[str, int], job: str, missing: list[str]) -> None:
    found = cluster_problems(make("parameter_server"), cluster(jobs, job))
    assert [problem.where.rsplit(": ", 1)[1] for problem in found] == missing
    assert all(problem.fix and problem.why for problem in found)


def test_recorded_machines_know_of_no_cluster() -> None:
    facts = machine(8, source="recorded/dgx1.json")
    assert registry.problems(make("parameter_server"), facts, {}) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (make("parameter_server", ["GPU:0"]), ("each worker computes", "CUDA_VISIBLE_DEVICES")),
        (make("parameter_server", strategy={"logical_cpus": 2}), ("first CPU device", "more workers")),
        (make("parameter_server", xla={"jit": "model"}), ("in others", "xla.jit: auto")),
        (
            make("parameter_server", mixed_precision={"policy": "mixed_float16"}),
            ("mixed_bfloat16", "multi_worker_mirrored", "Keras 2 refuses"),
        ),
        (make("parameter_server", communication={"num_packs": 2}), ("nothing is reduced", "shard_above_mb")),
        (make("parameter_server", communication={"pack_mb": 2}), ("nothing is reduced", "shard_above_mb")),
        (make("parameter_server", communication={"implementation": "nccl"}), ("nothing is reduced",)),
        (make("parameter_server", communication={"timeout_seconds": 9.0}), ("no collective", "stall_seconds")),
    ],
)
def test_what_this_kind_does_not_have_is_refused(config: Config, words: tuple[str, ...]) -> None:
    (text,) = texts(config, FULL)
    for word in words:
        assert word in text


@pytest.mark.parametrize("kind", ("default", "mirrored"))
def test_whole_variables_have_no_limit_above_which_they_are_divided(kind: str) -> None:
    found = registry.problems(make(kind, strategy={"shard_above_mb": 64}), machine(1, source="recorded/dgx1.json"), {})
    assert len(found) == 1 and found[0].where.endswith("strategy.shard_above_mb") and "parameter_server" in found[0].fix


@pytest.mark.parametrize("stack", ("keras3", "tf_keras", "keras2"))
def test_the_forecast_says_what_is_exact(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environ(FULL).items():
        monkeypatch.setenv(name, value)
    forecast = registry.forecast(make("parameter_server"), machine(1, stack=stack))
    assert forecast.status is Status.APPLIED
    for words in ("A chief, 2 workers and 2 parameter servers", "without waiting", "with one worker", "128 MiB"):
        assert words in forecast.message
    assert ("Keras 2 refuses" in forecast.message) is (stack != "keras3")
    assert registry.forecast_communication(make("parameter_server"), machine(1)).status is Status.NOT_APPLICABLE


def test_replicas_are_those_of_one_worker() -> None:
    assert registry.replicas(make("parameter_server"), machine(2)) == 2
    assert registry.replicas(make("parameter_server", strategy={"logical_cpus": 4}), machine(0)) == 1


def test_limits_and_their_defaults() -> None:
    assert limit_mb(make("parameter_server")) == 128
    assert limit_mb(make("parameter_server", strategy={"shard_above_mb": 3})) == 3
    assert timeout_seconds(make("parameter_server")) == 120.0
    assert timeout_seconds(make("parameter_server", cluster={"preflight_timeout_seconds": 5.0})) == 5.0


# -- splitting


@pytest.mark.parametrize(
    ("size", "servers", "count"),
    [
        (1, 4, 1),
        (LIMIT, 4, 1),
        (LIMIT + 1, 4, 2),
        (2 * LIMIT, 4, 2),
        (2 * LIMIT + 1, 4, 3),
        (100 * LIMIT, 4, 4),
        (100 * LIMIT, 1, 1),
    ],
)
def test_shards(size: int, servers: int, count: int) -> None:
    assert shard_count(10**6, size, LIMIT, servers) == count


class Dtype:
    """What a partitioner is given."""

    def __init__(self, size: Optional[int]) -> None:
        self.size = size


def test_the_partitioner_splits_the_first_axis_only() -> None:
    split = SizePartitioner(1024, 4)
    assert split((256,), Dtype(4)) == [1]
    assert split((257,), Dtype(4)) == [2]
    assert split((100, 10, 1), Dtype(4)) == [4, 1, 1]
    assert split((2, 10**6), Dtype(4)) == [2, 1]  # there are no more rows
    assert split((1, 10**6), Dtype(4)) == [1, 1]
    assert split((), Dtype(4)) == []
    assert split((0, 5), Dtype(4)) == [1, 1]
    assert split((65,), Dtype(None)) == [2]  # texts


def placed(name: str, *sizes: tuple[int, int]) -> list[Placed]:
    return [Placed(name, SERVER.format(server), size) for server, size in sizes]


def test_servers_are_named_and_added_up() -> None:
    parts = [*placed("a", (0, 5), (1, 4)), *placed("b", (1, 10)), Placed("c", "/device:CPU:0", 1)]
    assert bytes_by_server(parts) == {"/device:CPU:0": 1, "ps 0": 5, "ps 1": 14}


def test_wrong_splits_are_named() -> None:
    parts = {
        "right": placed("right", (0, 800), (1, 700)),
        "small": placed("small", (0, 10)),
        "whole": placed("whole", (0, 1500)),
        "crowded": placed("crowded", (1, 800), (1, 700)),
        "needless": placed("needless", (0, 5), (1, 5)),
    }
    found = wrongly_split(parts, dict.fromkeys(parts, 100), 1024, 2)
    assert found == [
        "whole is in one piece instead of 2",
        "crowded has several shards on one server",
        "needless is in 2 shards instead of 1",
    ]


# -- the processes


def test_workers_and_servers_serve() -> None:
    assert [serves(cluster(FULL, job)) for job in ("chief", "worker", "ps")] == [False, True, True]
    assert not serves(cluster({"chief": 1, "worker": 1}, "worker"))
    assert not serves(None)
    assert Served("ps 0").code == 0


def test_an_end_travels_as_text() -> None:
    for ending in (completed(), failed("ValueError: no"), ChiefEnd(False)):
        assert ChiefEnd.from_text(ending.to_text()) == ending


def test_the_chief_names_those_who_did_not_come() -> None:
    """One worker listens, another process does not."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # taken, and nobody listens
        tasks: dict[str, Any] = {
            "chief": ["127.0.0.1:1"],
            "worker": [f"127.0.0.1:{listening.getsockname()[1]}"],
            "ps": [f"127.0.0.1:{reserved.getsockname()[1]}"],
        }
        found = resolve({"TF_CONFIG": json.dumps({"cluster": tasks, "task": {"type": "chief", "index": 0}})})
        assert found is not None
        with pytest.raises(ClusterError, match="ps 0 did not come") as caught:
            Coordination(found, SizePartitioner(LIMIT, 1), 0.1)
    (problem,) = caught.value.problems
    assert tasks["ps"][0] in problem.where and "preflight_timeout_seconds" in problem.fix
    assert present() is None


def test_a_step_is_not_compiled_where_a_chief_has_a_gpu() -> None:
    decision = decide_jit("auto", planned_situation(machine(1), make("parameter_server", xla={"jit": "auto"})))
    assert not decision.on and "in other processes" in decision.reason
