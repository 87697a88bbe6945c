"""The command line: exit codes, words instead of tracebacks, JSON on request, pipes."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from tests.pure.evidence_examples import evidence
from tests.pure.sources import ROOT
from tfvolta.cli.main import COMMANDS, main
from tfvolta.evidence.store import EvidenceStore


@pytest.fixture
def runs(tmp_path: pathlib.Path) -> pathlib.Path:
    for run_id, speed in (("first", 2000.0), ("second", 3000.0)):
        store = EvidenceStore.create(tmp_path / "runs", run_id)
        store.write(evidence(run_id=run_id, measurements={"throughput": {"examples_per_second": speed}}))
        os.utime(store.path, ns=(int(speed), int(speed)))
    return tmp_path / "runs"


def call(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    command = [sys.executable, "-m", "tfvolta", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_report_of_a_run_and_of_the_last(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "first", "--directory", str(runs)]) == 0
    assert "2,000" in capsys.readouterr().out
    assert main(["report", "--directory", str(runs)]) == 0
    text = capsys.readouterr().out
    assert "3,000" in text and str(runs / "second" / "evidence.json") in text


def test_report_as_json(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--json", str(runs / "first")]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["evidence"]["measurements"]["throughput"]["examples_per_second"] == 2000.0
    assert content["verdict"].startswith("Completed")
    assert main(["report", "--json", "--directory", str(runs), "first", "second"]) == 0
    (difference,) = json.loads(capsys.readouterr().out)["differences"]["measurements"]
    assert difference["ratio"] == 1.5


def test_a_run_compared_with_itself(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(runs / "first"), str(runs / "first")]) == 0
    assert "Nothing differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["report", "nothing"], "No such run"),
        (["report"], "There is no run yet"),
        (["report", "a", "b", "c"], "Too many runs"),
        (["repotr"], "did you mean: tfvolta report"),
        (["train.py"], "tfvolta run train.py"),
        (["configs", "defualt"], "tfvolta:default"),
    ],
)
def test_a_mistake_is_explained(arguments: list[str], expected: str, tmp_path: pathlib.Path) -> None:
    extra = ["--directory", str(tmp_path)] if arguments[0] == "report" else []
    done = call(*arguments, *extra)
    assert done.returncode == 2
    assert expected in done.stderr and "fix:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_error_is_json_where_json_was_asked_for(tmp_path: pathlib.Path) -> None:
    done = call("report", "nothing", "--json", "--directory", str(tmp_path))
    content = json.loads(done.stdout)
    assert content["exit_code"] == done.returncode == 2
    assert content["error"]["problems"][0]["fix"]


def test_the_traceback_is_there_for_those_who_ask(tmp_path: pathlib.Path) -> None:
    done = call("report", "nothing", "--directory", str(tmp_path), TFVOLTA_TRACEBACK="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr and "EvidenceError" in done.stderr


def test_version_and_help() -> None:
    import tfvolta

    assert call("--version").stdout == f"tfvolta {tfvolta.__version__}\n"
    text = call("--help").stdout
    assert all(command in text for command in COMMANDS)
    assert call().returncode == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str) -> None:
    done = call(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "--json" in done.stdout


def test_a_reader_that_stops_early_is_no_error(runs: pathlib.Path) -> None:
    store = EvidenceStore.create(runs, "long")
    store.write(evidence(run_id="long", measurements={f"m{n}": {"value": n} for n in range(5000)}))
    command = f"{shlex.quote(sys.executable)} -m tfvolta report {shlex.quote(str(store.directory))} | head -1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("Completed")
    assert done.stderr == ""


def test_an_old_terminal_gets_escapes(runs: pathlib.Path) -> None:
    store = EvidenceStore.create(runs, "foreign")
    store.write(evidence(run_id="foreign", warnings=["größer → schneller"]))
    done = call("report", str(store.directory), PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfer" in done.stdout


def test_configs_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configs", "--json"]) == 0
    listed = {entry["name"]: entry["description"] for entry in json.loads(capsys.readouterr().out)}
    assert listed["tfvolta:default"]
    assert not any("yaml-language-server" in description for description in listed.values())
    assert main(["configs"]) == 0
    assert "tfvolta:default" in capsys.readouterr().out
    assert main(["configs", "default"]) == 0
    assert "devices:" in capsys.readouterr().out
