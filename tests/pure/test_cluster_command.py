"""``tfvolta cluster``: what it prints, and its exit codes; and what a timed all-reduce is taken for."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

import pytest

from tests.pure.cluster_environments import horovodrun, open_mpi, tf_config
from tfvolta.cli.main import main
from tfvolta.knobs.first_all_reduce import Step, time_all_reduce
from tfvolta.outcome import Status

_LAUNCHERS = ("TF_CONFIG", "SLURM_", "OMPI_", "PMI_", "PMIX_", "HOROVOD_", "JOB_COMPLETION_INDEX", "KUBERNETES_")


@pytest.fixture(name="run")
def _run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command in an environment without any launcher but the one given."""

    def run(environ: dict[str, str], *arguments: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            import os

            for name in [name for name in os.environ if name.startswith(_LAUNCHERS)]:
                patch.delenv(name)
            for name, text in environ.items():
                patch.setenv(name, text)
            code = main(["cluster", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def local(count: int, index: int = 0) -> dict[str, str]:
    ports = []
    with contextlib.ExitStack() as servers:  # all at once, or the kernel may give one port twice
        for _ in range(count):
            ports.append(servers.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1])
    return tf_config({"worker": [f"127.0.0.1:{port}" for port in ports]}, {"type": "worker", "index": index})


def test_a_process_alone(run: Any) -> None:
    code, out, _ = run({})
    assert code == 0 and "a run of one process" in " ".join(out.split())
    code, out, _ = run({}, "--json")
    assert code == 0 and json.loads(out) == {"resolver": "local", "world_size": 1, "warnings": []}
    code, out, err = run({}, "--write-tf-config")
    assert (code, out) == (2, "") and "nothing to write" in err


def test_what_was_found_and_why(run: Any) -> None:
    environ = local(2, index=1)
    code, out, _ = run({**environ, **open_mpi(0, 2, 0, 2)})
    text = " ".join(out.split())
    assert code == 0
    assert "This process is worker 1, rank 1 of 2" in text and "TF_CONFIG names 2 workers" in text
    assert "OMPI_COMM_WORLD_SIZE is set too and was not used" in text
    code, out, _ = run(environ, "--json")
    content = json.loads(out)
    assert (code, content["resolver"], content["rank"], content["task"]["index"]) == (0, "tf_config", 1, 1)
    assert {"worker": content["addresses"]["worker"]} == json.loads(environ["TF_CONFIG"])["cluster"]


def test_tf_config_is_written_from_what_a_launcher_says(run: Any) -> None:
    code, out, _ = run(open_mpi(1, 2, 1, 2), "--write-tf-config", "--set", "cluster.port=23456")
    cluster = {"worker": ["127.0.0.1:23456", "127.0.0.1:23457"]}
    assert (code, json.loads(out)) == (0, {"cluster": cluster, "task": {"type": "worker", "index": 1}})
    code, out, err = run(horovodrun(0, 2), "--write-tf-config")
    assert (code, out) == (2, "") and "horovodrun tells a process its rank only" in err


def test_errors_have_code_2_and_all_problems(run: Any) -> None:
    code, out, err = run({"TF_CONFIG": '{"clusters": {}, "tusk": {}}'}, "--json")
    error = json.loads(out)["error"]
    assert code == 2 and error["type"] == "ClusterError" and len(error["problems"]) == 4
    assert 'did you mean "cluster"?' in err
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = tf_config({"worker": [f"127.0.0.1:{port}", "127.0.0.1:1"]}, {"type": "worker", "index": 0})
        code, out, err = run(taken)
    assert code == 2 and "another process listens on it" in err and "worker 1" in out
    code, _, err = run({}, "--set", "cluster.resolver=slurm")
    assert code == 2 and "SLURM_PROCID" in err


def test_an_all_reduce_in_which_somebody_is_missing_has_no_effect() -> None:
    value = {"kibibytes": 4, "repeats": 3}
    outcome = time_all_reduce(Step(lambda: 2.0, 2), value)
    assert outcome.status is Status.APPLIED and "All 2 replicas took part" in outcome.message
    assert (outcome.observed["bytes"], outcome.observed["times"]) == (4096, 3)
    assert 0 <= outcome.observed["fastest_ms"] <= outcome.observed["median_ms"] <= outcome.observed["slowest_ms"]
    outcome = time_all_reduce(Step(lambda: 1.0, 2), value)
    assert outcome.status is Status.NO_EFFECT and outcome.fix
