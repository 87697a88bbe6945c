"""What ``tfvolta launch --print`` writes for other engines."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pure.sources import ROOT
from tfvolta.cli.main import main
from tfvolta.errors import LaunchError
from tfvolta.facts.record import load
from tfvolta.launch.horovodrun import horovodrun_command
from tfvolta.launch.request import Request
from tfvolta.launch.slurm import sbatch_script

CONFIG = ("--config", "two nodes.yaml")


def request(kind: str, workers: int, **changes: object) -> Request:
    fields = {"run_options": CONFIG, "arguments": ("--rate", "it's"), "servers": int(kind == "parameter_server")}
    return Request(kind, workers, "train.py", **{**fields, **changes})  # type: ignore[arg-type]


def checked(text: str) -> list[str]:
    """The lines of a script that bash can read."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return text.splitlines()


def options(lines: list[str]) -> dict[str, str]:
    """The options of sbatch; they must come before the first command."""
    found = {}
    for line in lines[1:]:
        if not line.startswith("#SBATCH "):
            break
        name, _, value = line[len("#SBATCH ") :].partition("=")
        found[name] = value
    return found


def test_a_script_for_two_dgx1() -> None:
    environ = {"TF_USE_LEGACY_KERAS": "1", "HOME": "/root", "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": "--a=b c"}
    text = sbatch_script(request("multi_worker_mirrored", 16), load("dgx1"), 2, ["--partition=gpu"], environ)
    lines = checked(text)
    assert lines[0] == "#!/bin/bash"
    assert options(lines) == {
        "--job-name": "train",
        "--output": "%x-%j.out",
        "--nodes": "2",
        "--ntasks": "16",
        "--ntasks-per-node": "8",
        "--gpus-per-task": "1",
        "--cpus-per-task": "10",
        "--partition": "gpu",
    }
    assert "export TF_USE_LEGACY_KERAS=1" in lines and "export XLA_FLAGS='--a=b c'" in lines and "HOME" not in text
    assert "LOG_LEVEL" not in text, "a choice of the shell's owner, which would hide the job's own messages"
    assert any(line.startswith('export TFVOLTA_RUN_ID="slurm-${SLURM_JOB_ID}') for line in lines)
    words = shlex.split(lines[-1])
    assert words[0] == "srun" and "--kill-on-bad-exit=1" in words
    assert words[-9:] == [sys.executable, "-m", "tfvolta", "run", *CONFIG, "train.py", "--rate", "it's"]


@pytest.mark.parametrize(
    ("script", "name"),
    [('jobs/my train "v2".py', "my_train_v2"), ("it's.py", "it_s"), ("--.py", "--"), ("''.py", "train")],
)
def test_the_job_is_named_in_one_word(script: str, name: str) -> None:
    asked = dataclasses.replace(request("multi_worker_mirrored", 2), script=script)
    assert options(checked(sbatch_script(asked, load("cpu"), 1, [], {})))["--job-name"] == name


def test_parameter_servers_are_tasks_too() -> None:
    lines = checked(sbatch_script(request("parameter_server", 2), load("cpu"), 2, [], {}))
    assert options(lines)["--ntasks"] == "4" and "--gpus-per-task" not in options(lines)


def test_horovod_is_started_by_its_own_launcher_on_the_jobs_machines() -> None:
    lines = checked(sbatch_script(request("horovod", 8), load("dgx1"), 2, [], {}))
    assert options(lines)["--gpus-per-node"] == "4" and "--gpus-per-task" not in options(lines)
    assert lines[-2].startswith("hosts=$(scontrol show hostnames") and "s/$/:4/" in lines[-2]
    assert lines[-1].startswith('horovodrun -np 8 -H "$hosts" --gloo ') and lines[-1].endswith("'it'\"'\"'s'")


@pytest.mark.parametrize("kind", ["multi_worker_mirrored", "horovod"])
def test_slurm_starts_a_failed_job_again(kind: str) -> None:
    lines = checked(sbatch_script(request(kind, 2, max_restarts=3), load("cpu"), 1, [], {}))
    assert "--requeue" in options(lines)
    assert "code != 0" in lines[-2] and "SLURM_RESTART_COUNT:-0} < 3" in lines[-2] and "code != 2" in lines[-2]
    assert lines[-1] == "exit $code"


@pytest.mark.parametrize(
    ("asked", "machine", "nodes", "words"),
    [
        (request("multi_worker_mirrored", 16), "dgx1", 1, "--nodes 2"),
        (request("multi_worker_mirrored", 2), "cpu", 3, "--nodes"),
        (request("multi_worker_mirrored", 2, run_options=None), "cpu", 1, "--config tfvolta:default"),
    ],
)
def test_scripts_that_could_not_work(asked: Request, machine: str, nodes: int, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        sbatch_script(asked, load(machine), nodes, [], {})


def test_horovodrun_on_this_machine() -> None:
    words = shlex.split(horovodrun_command(request("horovod", 2)))
    assert words[:9] == [
        "horovodrun",
        "-np",
        "2",
        "-H",
        "localhost:2",
        "--network-interface",
        "lo",
        "--gloo",
        sys.executable,
    ]
    assert words[-3:] == ["train.py", "--rate", "it's"]
    with pytest.raises(LaunchError, match="--print slurm"):
        horovodrun_command(request("multi_worker_mirrored", 2))


def test_the_command_prints_and_starts_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = ROOT / "examples" / "digits.py"
    words = ["launch", "--workers", "4", "--kind", "multi_worker_mirrored", "--config", "tfvolta:default"]
    code = main([*words, "--print", "slurm", "--facts", "dgx1", "--nodes", "2", "--sbatch=--time=1:00:00", str(script)])
    lines = checked(capsys.readouterr().out.rstrip("\n"))
    assert code == 0 and options(lines)["--nodes"] == "2" and options(lines)["--time"] == "1:00:00"
    assert main([*words, "--facts", "dgx1", str(script)]) == 2
    assert "workers are started on this machine" in capsys.readouterr().err
