"""The check before training between real processes on loopback. None of them loads TensorFlow."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar, Iterator, Mapping, Sequence

import pytest

from tfvolta.launch.ports import Ports

ROOT = Path(__file__).resolve().parents[2]
MULTI_WORKER = {"strategy": {"kind": "multi_worker_mirrored"}}
LIMIT_SECONDS = 120
ENOUGH = 90.0
SHORT = 4.0


def config(timeout: float = ENOUGH, **sections: Any) -> dict[str, Any]:
    return {**MULTI_WORKER, "cluster": {"preflight_timeout_seconds": timeout}, **sections}


class Worker:
    """One process; what it printed is read when it has ended."""

    def __init__(self, asked: Mapping[str, Any], environ: Mapping[str, str], gate: bool = False):
        command = [sys.executable, "-m", "tests.processes.preflight_worker", json.dumps(asked)]
        self._process = subprocess.Popen(
            [*command, *(["gate"] if gate else [])],
            cwd=ROOT,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if gate:
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        """Lets it pass its gate."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def said(self) -> dict[str, Any]:
        """What it printed, when it has ended."""
        out, err = self._process.communicate(timeout=LIMIT_SECONDS)
        assert self._process.returncode == 0, err
        return dict(json.loads(out.splitlines()[-1]))

    def kill(self) -> None:
        """Ends it; for what a failed test leaves behind."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(name="start")
def _start() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def start(*arguments: Any, **keywords: Any) -> Worker:
            worker = Worker(*arguments, **keywords)
            stack.callback(worker.kill)
            return worker

        yield start


@pytest.fixture(name="ports")
def _ports() -> Iterator[Sequence[str]]:
    with Ports(3) as ports:
        yield ports.addresses


def member(index: int, addresses: Sequence[str], job: str = "worker") -> dict[str, str]:
    """TF_CONFIG of one of some workers."""
    task = {"type": job, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": list(addresses)}, "task": task})}


def errors(said: Sequence[dict[str, Any]]) -> list[str]:
    return [each["error"]["text"] for each in said]


def test_three_workers_meet_in_any_order(start: Any, ports: Sequence[str]) -> None:
    """The chief comes last, and each finds the same."""
    chief = start(config(), member(0, ports), gate=True)
    others = [start(config(), member(index, ports)) for index in (1, 2)]
    chief.go()
    said = [chief.said(), *(other.said() for other in others)]
    assert [each.get("error") for each in said] == [None, None, None]
    observed = [each["preflight"]["observed"] for each in said]
    assert observed[0] == observed[1] == observed[2]
    assert [each["preflight"]["status"] for each in said] == ["APPLIED"] * 3
    workers = observed[0]["workers"]
    assert [worker["name"] for worker in workers] == ["worker 0", "worker 1", "worker 2"]
    assert [worker["address"] for worker in workers] == list(ports)
    assert len({worker["pid"] for worker in workers}) == 3
    assert len({worker["config_digest"] for worker in workers}) == 1
    assert all(abs(worker["clock_offset_seconds"]) <= worker["round_trip_seconds"] for worker in workers[1:])
    assert all(worker["versions"]["python"] == "3.11" for worker in workers)
    assert not any(each["tensorflow"] for each in said)


def test_a_worker_with_another_config_ends_all_with_one_error(start: Any, ports: Sequence[str]) -> None:
    odd = config(fit={"steps_per_execution": 4})
    workers = [start(odd if index == 1 else config(), member(index, ports)) for index in range(3)]
    texts = errors([worker.said() for worker in workers])
    assert len(set(texts)) == 1
    assert f"worker 1 ({ports[1]}): fit.steps_per_execution" in texts[0]
    assert "received: 4" in texts[0] and "the same config file" in texts[0]


def test_every_worker_that_is_there_says_who_is_missing(start: Any, ports: Sequence[str]) -> None:
    workers = [start(config(SHORT), member(index, ports), gate=True) for index in (0, 2)]
    for worker in workers:
        worker.go()
    said = [worker.said() for worker in workers]
    assert {each["error"]["summary"] for each in said} == {f"worker 1 ({ports[1]}) has not come within 4 s."}
    assert len(set(errors(said))) == 1


def test_a_chief_that_does_not_come_is_named(start: Any, ports: Sequence[str]) -> None:
    (text,) = errors([start(config(SHORT), member(1, ports)).said()])
    assert text.startswith(f"worker 0 ({ports[0]}) has not come within 4 s.")
    assert "Connection refused" in text and "preflight_timeout_seconds" in text


def test_two_jobs_at_once_do_not_mix(start: Any, ports: Sequence[str]) -> None:
    """The second job's chief finds its meeting port taken by the first one's, and takes the next."""
    with Ports(2) as second:
        one, other = list(ports[:2]), list(second.addresses)
        chiefs = [start(config(), member(0, addresses), gate=True) for addresses in (one, other)]
        followers = [start(config(), member(1, addresses)) for addresses in (one, other)]
        with occupied_meeting_port(other[0]):
            for chief in chiefs:
                chief.go()
            said = [worker.said() for worker in (*chiefs, *followers)]
    assert [each.get("error") for each in said] == [None] * 4
    for index, addresses in enumerate((one, other)):
        for each in (said[index], said[index + 2]):
            assert [worker["address"] for worker in each["preflight"]["observed"]["workers"]] == addresses


@contextlib.contextmanager
def occupied_meeting_port(address: str) -> Iterator[None]:
    """Something else listens on the port on which a chief would meet the others, and closes what comes."""
    host, port = address.rsplit(":", 1)
    from tfvolta.cluster.ports import meeting_port

    with socket.create_server((host, meeting_port(int(port), frozenset({int(port), int(port) + 1})))) as server:

        def turn_away() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=turn_away, daemon=True)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join(LIMIT_SECONDS)


def test_a_worker_with_another_list_of_workers_is_told_at_once(start: Any, ports: Sequence[str]) -> None:
    chief = start(config(SHORT), member(0, ports[:2]), gate=True)
    other = start(config(), member(1, [ports[0], ports[2]]), gate=True)
    for worker in (chief, other):
        worker.go()
    said = [chief.said(), other.said()]
    assert said[1]["error"]["summary"] == "This worker and the chief have different lists of workers."
    assert json.dumps([ports[0], ports[1]]) in said[1]["error"]["text"]
    assert f"worker 1 ({ports[1]}) has not come" in said[0]["error"]["summary"]
    assert "came with another list of workers" in said[0]["error"]["text"]


def test_two_processes_with_one_index_are_both_named(start: Any, ports: Sequence[str]) -> None:
    chief = start(config(), member(0, ports))
    twins = [start(config(), member(1, ports)) for _ in range(2)]
    said = [each.said() for each in (chief, *twins)]
    assert {each["error"]["summary"] for each in said} == {"Two processes have one place."}
    assert "both say that they are this worker" in said[0]["error"]["text"]


def test_a_worker_that_was_started_again_alone_is_told_so(start: Any, ports: Sequence[str]) -> None:
    """The chief's own server answers while nobody meets: training has begun."""
    host, port = ports[0].rsplit(":", 1)
    with socket.create_server((host, int(port))):
        said = start(config(), member(1, ports)).said()
        assert said["error"]["summary"] == "This worker came too late."
        servers = {"chief": [ports[0]], "worker": [ports[1]], "ps": [ports[2]]}
        task = {"TF_CONFIG": json.dumps({"cluster": servers, "task": {"type": "worker", "index": 0}})}
        joined = start({**config(), "strategy": {"kind": "parameter_server"}}, task).said()
    assert joined["preflight"]["status"] == "UNVERIFIABLE"
    assert "trains already" in joined["preflight"]["message"]


def test_a_process_alone_meets_nobody(start: Any) -> None:
    said = start(config(), {"TF_CONFIG": member(0, ["127.0.0.1:1"])["TF_CONFIG"]}).said()
    assert (said["cluster"]["status"], said["preflight"]["status"]) == ("PENDING", "NOT_APPLICABLE")


class Store(http.server.BaseHTTPRequestHandler):
    """horovodrun's store: bytes by path, GET and PUT."""

    values: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        value = self.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        self.values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"")

    def _answer(self, status: int, value: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: requests are many."""


def test_horovods_ranks_meet_where_its_store_says(start: Any) -> None:
    Store.values = {}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        common = {
            "HOROVOD_SIZE": "2",
            "HOROVOD_LOCAL_SIZE": "2",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(store.server_address[1]),
        }
        asked = {**config(), "strategy": {"kind": "horovod"}}
        ranks = [
            start(asked, {**common, "HOROVOD_RANK": str(rank), "HOROVOD_LOCAL_RANK": str(rank)}) for rank in range(2)
        ]
        said = [rank.said() for rank in ranks]
        store.shutdown()
    assert [each["preflight"]["status"] for each in said] == ["APPLIED"] * 2
    assert [worker["rank"] for worker in said[0]["preflight"]["observed"]["workers"]] == [0, 1]
    assert len(Store.values) == 1


def test_horovods_ranks_without_a_common_place_say_so(start: Any) -> None:
    environ = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}
    said = start({**config(), "strategy": {"kind": "horovod"}}, environ).said()
    assert said["preflight"]["status"] == "UNVERIFIABLE"
