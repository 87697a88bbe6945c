"""What is known to fail before workers meet, and what their reports make of them when they have met."""

from __future__ import annotations

import json
import socket
import types
from typing import Any, Iterator

import pytest

from tests.pure.cluster_environments import config, open_mpi, tf_config
from tests.pure.recorded_context import H200, V100, RecordedContext, machine
from tfvolta.cluster import Cluster, resolve
from tfvolta.cluster.checks import gpu_problems, gpu_warnings, network_problems
from tfvolta.cluster.comparison import compare
from tfvolta.cluster.meeting_place import AddressPlace
from tfvolta.cluster.worker_report import commit_of, make_report, summary
from tfvolta.facts.schema import Facts, Gpu, TensorFlowBuild
from tfvolta.knobs.cluster import ClusterResolution
from tfvolta.knobs.preflight import Preflight
from tfvolta.outcome import Status

LOCAL = "127.0.0.1"


def cluster_at(*addresses: str, index: int = 0) -> Cluster:
    cluster = resolve(tf_config({"worker": list(addresses)}, {"type": "worker", "index": index}))
    assert cluster is not None
    return cluster


@pytest.fixture(name="taken")
def _taken() -> Iterator[int]:
    with socket.create_server((LOCAL, 0)) as server:
        yield int(server.getsockname()[1])


def free_port() -> int:
    with socket.create_server((LOCAL, 0)) as server:
        return int(server.getsockname()[1])


# -- hosts, addresses, ports


def test_a_port_that_is_taken_names_the_worker_and_the_fix(taken: int) -> None:
    (problem,) = network_problems(cluster_at(f"{LOCAL}:{free_port()}", f"{LOCAL}:{taken}", index=1), {})
    assert problem.where == f"worker 1: {LOCAL}:{taken}"
    assert "another process listens on it" in problem.received
    assert f"sport = :{taken}" in problem.fix and "in TF_CONFIG" in problem.fix
    # This process's own server is no obstacle, and a peer's port is the peer's to look at.
    assert network_problems(cluster_at(f"{LOCAL}:{taken}", f"{LOCAL}:{free_port()}"), {}, started=True) == []
    assert network_problems(cluster_at(f"{LOCAL}:{free_port()}", f"{LOCAL}:{taken}"), {}) == []


def test_a_free_port_is_fine_also_just_after_a_connection() -> None:
    with socket.create_server((LOCAL, 0)) as server:
        port = int(server.getsockname()[1])
        with socket.create_connection((LOCAL, port)):
            served, _ = server.accept()
            served.close()  # closes first, so that its side lingers
    assert network_problems(cluster_at(f"localhost:{port}", f"{LOCAL}:{free_port()}"), {}) == []


def test_hosts_without_an_address_are_all_named() -> None:
    found = network_problems(cluster_at(f"{LOCAL}:{free_port()}", "no-such.invalid:1", "nor-this.invalid:1"), {})
    assert [problem.where for problem in found] == ["worker 1: no-such.invalid", "worker 2: nor-this.invalid"]
    assert all("/etc/hosts" in problem.fix for problem in found)


def test_an_own_address_that_is_another_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    # 192.0.2.0/24 is for documentation (RFC 5737), and 198.51.100.0/24 too: no machine has one.
    (problem,) = network_problems(cluster_at("198.51.100.7:9000", "198.51.100.8:9000"), {})
    assert problem.where == "worker 0: 198.51.100.7:9000" and "no such address" in problem.received
    assert "whose address is its own machine's" in problem.fix
    monkeypatch.setattr("tfvolta.cluster.checks._is_here", lambda address: address.endswith(".8"))
    (problem,) = network_problems(cluster_at("198.51.100.7:9000", "198.51.100.8:9000"), {})
    assert problem.fix == "this machine is that of worker 1: give this process that task"


def test_two_names_of_one_machine_with_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"node9": (LOCAL,), "node10": (LOCAL,), "node11": ("127.0.0.2",)}
    monkeypatch.setattr("tfvolta.cluster.checks._addresses", lambda host: known[host])
    port = free_port()
    (problem,) = network_problems(cluster_at(f"node9:{port}", f"node10:{port}", f"node11:{port}"), {})
    assert problem.where == f"worker 1: node10:{port}" and problem.received == "the machine and the port of worker 0"
    assert network_problems(cluster_at(f"node9:{port}", f"node10:{free_port()}", f"node11:{port}"), {}) == []


def test_a_loopback_address_where_others_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {LOCAL: (LOCAL,), "away": ("192.0.2.7",)}
    monkeypatch.setattr("tfvolta.cluster.checks._addresses", lambda host: known[host])
    (problem,) = network_problems(cluster_at(f"{LOCAL}:{free_port()}", "away:5000"), {})
    assert problem.where.startswith("worker 0: 127.0.0.1") and "worker 1 is at away:5000" in problem.received


def test_inside_kubernetes_the_meeting_finds_out() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert network_problems(cluster_at("no-such.invalid:1", "nor-this.invalid:1"), pod) == []


def test_plans_of_recorded_machines_look_at_no_network() -> None:
    environ = tf_config({"worker": ["no-such.invalid:1", "nor-this.invalid:1"]}, {"type": "worker", "index": 0})
    knob, asked = Preflight(), config("multi_worker_mirrored")
    value = knob.value(asked)
    assert knob.problems(value, machine(), environ) == []
    live = machine(source="live")
    assert len(knob.problems(value, live, environ)) == 2
    assert knob.problems(value, live, {"TF_CONFIG": "{}"}) == []  # the cluster knob says so
    assert [problem.received for problem in ClusterResolution().problems(value, live, {"TF_CONFIG": "{}"})] == ["{}"]


@pytest.mark.parametrize(
    ("host", "resolved", "everywhere"),
    [
        ("127.0.0.1", "127.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("node1", "127.0.1.1", True),  # Debian's address of a machine's own name
        ("node1", "127.0.0.1", True),
    ],
)
def test_the_chief_listens_where_the_others_arrive(
    host: str, resolved: str, everywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getaddrinfo(asked: str, port: int, **others: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (resolved, port))]

    place = AddressPlace(cluster_at(f"{host}:{free_port()}", "node2:1"))
    monkeypatch.setattr("tfvolta.cluster.meeting_place.socket.getaddrinfo", getaddrinfo)
    with place.listen() as listening:
        name = listening.getsockname()
    assert (name[0] in ("::", "0.0.0.0")) == everywhere
    assert (host, name[1]) in place.doors()


# -- GPUs


@pytest.mark.parametrize(
    ("gpus", "workers", "mask", "visible", "refused"),
    [
        (2, 2, None, None, False),
        (1, 2, None, None, True),
        (2, 3, None, None, True),
        (0, 3, None, None, False),  # no GPUs: training on CPUs
        (1, 2, "-1", None, False),
        (1, 2, "", None, False),
        (1, 2, None, [], False),
        (1, 2, "0", None, False),  # a launcher that hides the other workers' GPUs from this one
        (2, 3, "2", None, True),  # a GPU that is not there
    ],
)
def test_fewer_gpus_than_workers(gpus: int, workers: int, mask: Any, visible: Any, refused: bool) -> None:
    cluster = cluster_at(*(f"{LOCAL}:{20000 + number}" for number in range(workers)), index=workers - 1)
    facts = machine(V100 if gpus else None, gpus, host="node7")
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    found = gpu_problems(cluster, facts, environ, visible)
    assert [problem.where for problem in found] == ([f"worker {workers - 1} on node7"] if refused else [])


def test_a_plan_refuses_fewer_gpus_than_workers() -> None:
    environ = tf_config({"worker": [f"{LOCAL}:1", f"{LOCAL}:2"]}, {"type": "worker", "index": 0})
    knob = ClusterResolution()
    value = knob.value(config("multi_worker_mirrored"))
    assert [problem.received for problem in knob.problems(value, machine(V100), environ)] == ["2 workers"]
    assert knob.problems({**value, "visible": []}, machine(V100), environ) == []


def test_gpus_of_different_models_and_shared_ones_are_warned_of() -> None:
    other = V100.model_copy(update={"index": 1, "name": "NVIDIA H200"})
    facts = machine(host="node7").model_copy(update={"gpus": (V100, other)})
    warnings = gpu_warnings(cluster_at("a:1", "b:1"), facts, {})
    assert len(warnings) == 1 and "NVIDIA H200, Tesla V100-SXM2-16GB" in warnings[0]
    warnings = gpu_warnings(cluster_at("a:1", "a:2"), machine(V100, 2, host="node7"), {})
    assert len(warnings) == 1 and "CUDA_VISIBLE_DEVICES=<local rank>" in warnings[0]
    assert gpu_warnings(cluster_at("a:1", "a:2"), machine(V100, 2), {"CUDA_VISIBLE_DEVICES": "0"}) == []
    assert gpu_warnings(cluster_at("a:1", "a:2"), machine(V100, 2), {}, "horovod") == []


def test_forecasts_of_a_live_machine_say_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = config("multi_worker_mirrored")
    environ = tf_config({"worker": ["a:1", "a:2"]}, {"type": "worker", "index": 0})
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for knob in (ClusterResolution(), Preflight()):
        assert knob.forecast(knob.value(asked), machine(V100, 2), asked).condition
        alone = knob.forecast(knob.value(asked), machine(V100, 2, source="live"), asked)
        assert alone.status is Status.NOT_APPLICABLE and "one process" in alone.message
    monkeypatch.setenv("TF_CONFIG", environ["TF_CONFIG"])
    forecast = ClusterResolution().forecast(ClusterResolution().value(asked), machine(V100, 2, source="live"), asked)
    assert "TF_CONFIG names 2 workers" in forecast.message and "sees all its GPUs" in forecast.message
    forecast = Preflight().forecast(Preflight().value(asked), machine(source="live"), asked)
    assert "2 processes meet" in forecast.message and "120 s" in forecast.message


# -- the live strategy


class Strategy:
    """A strategy with a cluster, as knobs see it."""

    def __init__(self, jobs: dict[str, list[str]], replicas: int):
        self.num_replicas_in_sync = replicas
        self.cluster_resolver = self
        self._jobs = jobs

    def cluster_spec(self) -> Any:
        return self

    def as_dict(self) -> dict[str, list[str]]:
        return self._jobs


@pytest.mark.parametrize(
    ("jobs", "replicas", "status"),
    [
        ({"worker": ["a:1", "b:1"]}, 2, Status.APPLIED),
        ({"worker": ["a:1", "b:1"]}, 8, Status.APPLIED),
        ({"chief": ["a:1"], "worker": ["b:1"]}, 2, Status.APPLIED),
        ({}, 1, Status.NO_EFFECT),  # a local strategy
        ({}, 8, Status.NO_EFFECT),  # one machine with eight GPUs, and the other machine for itself
        ({"worker": ["a:1", "b:1"]}, 1, Status.NO_EFFECT),
        ({"worker": ["a:1", "b:1", "c:1"]}, 3, Status.NO_EFFECT),
    ],
)
def test_the_strategy_has_the_workers_that_the_cluster_implies(
    jobs: dict[str, list[str]], replicas: int, status: Status
) -> None:
    environ = tf_config({"worker": ["a:1", "b:1"]}, {"type": "worker", "index": 0})
    context = RecordedContext(config("multi_worker_mirrored"), machine(), environ)
    knob = ClusterResolution()
    value = knob.value(context.config)
    knob.apply(value, context)
    context.strategy = Strategy(jobs, replicas)
    outcome = knob.verify(value, context)
    assert outcome.status is status, outcome
    assert (outcome.observed["workers"], outcome.observed["replicas"]) == (sum(map(len, jobs.values())) or 1, replicas)
    assert bool(outcome.fix) == (status is Status.NO_EFFECT)


@pytest.mark.parametrize(("connected", "status"), [(2, Status.APPLIED), (1, Status.NO_EFFECT)])
def test_a_coordinator_is_connected_to_the_workers_that_the_cluster_implies(connected: int, status: Status) -> None:
    jobs = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    devices = ["/job:chief/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:0/device:CPU:0"]
    devices += [f"/job:worker/replica:0/task:{task}/device:CPU:{n}" for task in range(connected) for n in range(2)]
    listed = [types.SimpleNamespace(name=name) for name in devices]
    context = RecordedContext(config("parameter_server"), machine(), tf_config(jobs, {"type": "chief", "index": 0}))
    context.tensorflow.config.list_logical_devices = lambda kind: listed
    knob = ClusterResolution()
    value = knob.value(context.config)
    knob.apply(value, context)
    context.strategy = types.SimpleNamespace(num_replicas_in_sync=1)
    assert knob.verify(value, context).status is status


@pytest.mark.parametrize("job", ["worker", "ps"])
def test_processes_that_serve_leave_the_looking_to_the_chief(job: str) -> None:
    jobs = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["d:1"]}
    context = RecordedContext(config("parameter_server"), machine(), tf_config(jobs, {"type": job, "index": 0}))
    knob = ClusterResolution()
    value = knob.value(context.config)
    knob.apply(value, context)
    assert knob.verify(value, context).status is Status.UNVERIFIABLE


def test_what_a_launcher_says_is_written_and_taken_back() -> None:
    environ = {**open_mpi(1, 2, 1, 2), "TF_CONFIG": "of someone else"}
    asked = config("multi_worker_mirrored", resolver="open_mpi")
    context = RecordedContext(asked, machine(), environ)
    knob = ClusterResolution()
    value = knob.value(asked)
    knob.apply(value, context)
    written = json.loads(context.environ["TF_CONFIG"])
    assert written["task"] == {"type": "worker", "index": 1} and len(written["cluster"]["worker"]) == 2
    assert knob.verify(value, context).status is Status.PENDING
    assert knob.undo(context) and context.environ == environ


def test_horovod_needs_no_tf_config() -> None:
    asked = config("horovod")
    context = RecordedContext(asked, machine(), open_mpi(1, 2, 1, 2))
    knob = ClusterResolution()
    knob.apply(knob.value(asked), context)
    assert "TF_CONFIG" not in context.environ


# -- comparing reports


def gpu_machine(gpu: Gpu = H200, **changes: Any) -> Facts:
    """Two GPUs and a TensorFlow with CUDA."""
    build = TensorFlowBuild(version="2.21.0", cuda_version="12.5", compute_capabilities=("sm_70", "compute_90"))
    fields = {"python": "3.11.9", "packages": {"keras": "3.15.1"}, "tensorflow": build, **changes}
    return machine(gpu, 2, **fields)


def report(rank: int, facts: Any = None, environ: Any = None, **changes: Any) -> dict[str, Any]:
    cluster = cluster_at("a:1", "b:1", "c:1", index=rank)
    sections = changes.pop("config", {})
    asked = config("multi_worker_mirrored").model_validate({"strategy": {"kind": "multi_worker_mirrored"}, **sections})
    facts = facts or gpu_machine(host=f"node{rank}")
    return json.loads(json.dumps({**make_report(cluster, facts, asked, environ or {}), "commit": "abc", **changes}))


def test_equal_workers_have_nothing_to_say() -> None:
    assert compare([report(rank) for rank in range(3)]) == ([], [])
    assert compare([]) == ([], [])
    assert "config" not in summary(report(0)) and summary(report(0))["config_digest"]


def test_a_run_directory_of_its_own_is_no_difference() -> None:
    assert compare([report(0), report(1, config={"run": {"directory": "/scratch/1"}})]) == ([], [])


def test_versions_and_configs_that_differ_are_told_for_each_worker() -> None:
    older = gpu_machine(host="old", python="3.10.2", packages={"keras": "3.14.0"})
    problems, _ = compare([report(0), report(1, older), report(2, older, config={"run": {"seed": 7}})])
    assert [problem.where for problem in problems] == [
        "worker 1 (b:1), worker 2 (c:1): python",
        "worker 1 (b:1), worker 2 (c:1): keras",
        "worker 2 (c:1): run.seed",
    ]
    assert problems[0].fix == "use Python 3.11 on old"
    assert problems[1].fix == "on old: pip install keras==3.15.1"
    assert (problems[2].expected, problems[2].received) == ("null, as worker 0 (a:1) has", "7")


def test_a_section_that_only_one_worker_has_is_a_difference() -> None:
    problems, _ = compare([report(0), report(1, config={"fit": {"steps_per_execution": 4}})])
    assert "worker 1 (b:1): fit.steps_per_execution" in [problem.where for problem in problems]


def test_another_stack_or_a_missing_package() -> None:
    legacy = gpu_machine(stack="tf_keras", packages={"tf_keras": "2.21.0", "keras": "3.15.1"})
    problems, _ = compare([report(0), report(1, legacy)])
    fixes = {problem.where.rsplit(" ", 1)[1]: problem.fix for problem in problems}
    assert "TF_USE_LEGACY_KERAS" in fixes["stack"]
    assert {"stack", "keras", "tf_keras"} == set(fixes)


def test_different_numbers_of_gpus_are_refused_for_the_strategy_that_multiplies_its_own() -> None:
    fewer = {"CUDA_VISIBLE_DEVICES": "0"}
    problems, _ = compare([report(0), report(1, environ=fewer), report(2)])
    assert [(problem.where, problem.received) for problem in problems] == [("worker 1 (b:1): GPUs", "1")]
    servers = [report(0, kind="parameter_server"), report(1, environ=fewer, kind="parameter_server")]
    assert compare(servers) == ([], [])


def test_gpus_that_the_training_does_not_use_do_not_count() -> None:
    cpu = {"strategy": {"kind": "multi_worker_mirrored", "devices": ["CPU:0"]}}
    one = {"strategy": {"kind": "multi_worker_mirrored", "devices": ["GPU:1"]}}
    fewer = {"CUDA_VISIBLE_DEVICES": "0"}
    assert report(0, config=cpu)["gpus"] == [] and compare([report(0, config=cpu), report(1, config=cpu)]) == ([], [])
    assert (report(0, config=one)["gpus"], report(0, environ=fewer, config=one)["gpus"]) == (["NVIDIA H200"], [])
    without_cuda = machine(H200, 2, tensorflow=TensorFlowBuild(version="2.21.0"))
    assert report(0, without_cuda)["gpus"] == []


def test_models_commits_and_clocks_are_warnings() -> None:
    volta = gpu_machine(V100, host="node1")
    late = {"clock_offset_seconds": -3.2, "round_trip_seconds": 0.01}
    problems, warnings = compare([report(0), report(1, volta, commit="def+", **late)])
    assert problems == []
    assert len(warnings) == 3
    assert "NVIDIA H200: worker 0 (a:1); Tesla V100-SXM2-16GB: worker 1 (b:1)" in warnings[0]
    assert "git commit def+" in warnings[1]
    assert "3.2 s behind" in warnings[2]
    doubtful = {"clock_offset_seconds": 1.4, "round_trip_seconds": 1.0}
    assert compare([report(0), report(1, **doubtful)]) == ([], [])


def test_a_script_outside_of_git_has_no_commit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(str(tmp_path / "train.py")) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of("train.py") is None
