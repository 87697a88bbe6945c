"""What each worker is told through its environment, its command line, and why a launch is refused."""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
from pathlib import Path

import pytest

from tests.pure.recorded_context import V100, machine
from tfvolta.cli import launch
from tfvolta.cluster import resolve
from tfvolta.config.schema import Config
from tfvolta.errors import ConfigError, LaunchError
from tfvolta.launch.binding import Binding
from tfvolta.launch.environment import ALREADY, Start, already_started, worker_environment
from tfvolta.launch.ports import Ports
from tfvolta.launch.request import Request, problems
from tfvolta.launch.tasks import tasks_of

START = Start("run", "/beats", 2, ("127.0.0.1:1001", "127.0.0.1:1002", "127.0.0.1:1003", "127.0.0.1:1004"))


def test_workers_find_themselves_in_tf_config() -> None:
    tasks = tasks_of("multi_worker_mirrored", 2, 0)
    for task in tasks:
        environ = worker_environment({}, task, tasks, START)
        cluster = resolve(environ, Config.model_validate({"strategy": {"kind": "multi_worker_mirrored"}}))
        assert cluster is not None and cluster.name == task.name and cluster.rank == task.rank
        assert cluster.addresses == {"worker": ("127.0.0.1:1001", "127.0.0.1:1002")}
        assert cluster.is_chief is (task.rank == 0)
    assert environ["TFVOLTA_RUN_ID"] == "run" and environ["TFVOLTA_HEARTBEATS"] == "/beats"
    assert environ["TFVOLTA_RESTART"] == "2" and environ["PYTHONUNBUFFERED"] == "1"


def test_a_cluster_with_parameter_servers() -> None:
    tasks = tasks_of("parameter_server", 2, 1)
    config = json.loads(worker_environment({}, tasks[3], tasks, START)["TF_CONFIG"])
    assert config["task"] == {"type": "ps", "index": 0}
    assert config["cluster"] == {
        "chief": ["127.0.0.1:1001"],
        "worker": ["127.0.0.1:1002", "127.0.0.1:1003"],
        "ps": ["127.0.0.1:1004"],
    }


def test_horovods_ranks_find_themselves() -> None:
    tasks = tasks_of("horovod", 3, 0)
    environ = worker_environment({}, tasks[2], tasks, Start("run", "/beats", rendezvous_port=1234))
    cluster = resolve(environ, Config.model_validate({"strategy": {"kind": "horovod"}}))
    assert cluster is not None and (cluster.name, cluster.rank, cluster.world_size) == ("worker 2", 2, 3)
    assert environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "1234" and "TF_CONFIG" not in environ
    assert environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "300"


def test_what_the_user_has_set_stays() -> None:
    tasks = tasks_of("multi_worker_mirrored", 2, 0)
    own = {"OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "", "LANG": "C"}
    environ = worker_environment(own, tasks[0], tasks, START, binding=Binding((0, 1, 2, 3)))
    assert {name: environ[name] for name in own} == own
    assert worker_environment({}, tasks[0], tasks, START, binding=Binding((0, 1)))["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in worker_environment({}, tasks[0], tasks, START, binding=Binding())


def test_cuda_shows_a_worker_its_gpu_alone() -> None:
    tasks = tasks_of("multi_worker_mirrored", 2, 0)
    environ = worker_environment({"CUDA_VISIBLE_DEVICES": "2,3"}, tasks[1], tasks, START, gpus=(3,))
    assert environ["CUDA_VISIBLE_DEVICES"] == "3" and environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert worker_environment({}, tasks[1], tasks, START, gpus=())["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment({}, tasks[1], tasks, START)


@pytest.mark.parametrize("name", sorted(ALREADY))
def test_a_worker_of_a_job_starts_no_workers(name: str) -> None:
    (problem,) = already_started({name: "1"})
    assert name in problem.where and "tfvolta run" in problem.fix and f"env -u {name}" in problem.fix
    assert already_started({}) == [] and already_started({name: ""}) == []


def test_problems_come_all_at_once() -> None:
    request = Request("parameter_server", 0, "train.py", servers=0, max_restarts=-1, grace_seconds=float("nan"))
    found = [problem.where for problem in problems(request, machine(), {"TF_CONFIG": "{}"})]
    assert found == ["environment: TF_CONFIG", "--workers", "--max-restarts", "--grace-seconds", "--ps"]


def test_horovod_that_is_not_installed_is_said() -> None:
    (problem,) = problems(Request("horovod", 2, "train.py"), machine(), {})
    assert "not installed" in problem.received and "pip install --no-build-isolation" in problem.fix


def test_more_workers_than_gpus_are_refused() -> None:
    request = Request("multi_worker_mirrored", 3, "train.py", gpus=(0, 1))
    assert [problem.where for problem in problems(request, machine(V100, 2), {})] == ["--workers"]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    launch.add_parser(parser.add_subparsers())
    return parser.parse_args(["launch", *words])


def requested(tmp_path: Path, *words: str) -> Request:
    (tmp_path / "train.py").touch()
    arguments = parsed(*words, str(tmp_path / "train.py"), "--its", "own")
    config = launch.loaded(arguments)
    return launch.requested(arguments, config, machine())


def test_a_script_alone_runs_under_plain_python(tmp_path: Path) -> None:
    request = requested(tmp_path, "--workers", "2")
    assert request.kind == "multi_worker_mirrored"
    assert request.command == (sys.executable, str(tmp_path / "train.py"), "--its", "own")


@pytest.mark.parametrize(
    ("kind", "given", "call"),
    [
        ("multi_worker_mirrored", "TF_CONFIG", "MultiWorkerMirroredStrategy()"),
        ("horovod", "HOROVOD_", "hvd.init()"),
        ("parameter_server", "TF_CONFIG", "ParameterServerStrategy("),
    ],
)
def test_that_workers_run_a_script_as_it_is_is_said(tmp_path: Path, kind: str, given: str, call: str) -> None:
    text = requested(tmp_path, "--workers", "2", "--kind", kind).as_it_is
    assert given in text and call in text and f"--config tfvolta:default --kind {kind}" in text and "\n" not in text
    # What it advises is taken, and then it has nothing to say.
    taken = requested(tmp_path, "--workers", "2", "--config", "tfvolta:default", "--kind", kind)
    assert taken.run_options is not None and taken.as_it_is == ""


def test_with_a_config_workers_run_under_tfvolta(tmp_path: Path) -> None:
    config = tmp_path / "two.yaml"
    config.write_text("strategy: {kind: horovod}\n")
    request = requested(tmp_path, "--workers", "2", "--config", str(config), "--set", "run.seed=1", "--quiet")
    assert request.kind == "horovod" and request.quiet
    expected = ("-m", "tfvolta", "run", "--config", str(config), "--set", "run.seed=1", "--quiet")
    assert request.command[1:9] == expected and request.command[10:] == ("--its", "own")


def test_the_kind_of_the_command_line_wins(tmp_path: Path) -> None:
    request = requested(tmp_path, "--workers", "2", "--config", "tfvolta:default", "--kind", "parameter_server")
    assert (request.kind, request.servers) == ("parameter_server", 1)
    assert "strategy.kind=parameter_server" in request.command
    assert requested(tmp_path, "--workers", "2", "--kind", "parameter_server", "--ps", "3").servers == 3


def test_a_kind_of_one_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="--kind multi_worker_mirrored"):
        requested(tmp_path, "--workers", "2", "--set", "strategy.kind=mirrored")
    with pytest.raises(ConfigError):
        requested(tmp_path, "--workers", "2", "--set", "strategy.kind=many")


def test_gpus_that_the_launcher_has_chosen_are_all_for_the_worker(tmp_path: Path) -> None:
    words = ("--workers", "1", "--kind", "multi_worker_mirrored", "--set", "devices.visible=[1]")
    assert "devices.visible=all" in requested(tmp_path, *words).command


def test_ports_are_free_and_nobody_elses() -> None:
    with contextlib.ExitStack() as stack:
        reserved = [stack.enter_context(Ports(3)) for _ in range(20)]
        numbers = [number for ports in reserved for number in ports.numbers]
        assert len(set(numbers)) == 60 and all(10240 <= number < 32768 for number in numbers)
        for ports in reserved:
            assert ports.addresses[0] == f"127.0.0.1:{ports.numbers[0]}"
            server = stack.enter_context(socket.socket())
            server.bind(("127.0.0.1", ports.numbers[0]))  # held by name only: a worker can listen


def test_a_taken_port_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server, Ports(1) as probe:
        server.bind(("127.0.0.1", probe.numbers[0] + 1))
        server.listen()
        monkeypatch.setattr("tfvolta.launch.ports._candidates", lambda count: iter([probe.numbers[0] + 1]))
        with pytest.raises(LaunchError, match="free ports"):
            Ports(1)
