"""Training that stands still: the watchdog of one process, and what launcher and workers make of a stuck worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes.launched import LIMIT_SECONDS, Launched, clean_environment, elapsed, launch, once, summary

TRAIN = """
import os
import numpy as np
import tensorflow as tf
keras = tf.keras
x = np.ones((32, 8), "float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
seen = []
class Hangs(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        seen.append(batch)
        if len(seen) == 6:
            os.read(os.pipe()[0], 1)
"""
FIT = """
model.fit(x, x[:, :1], batch_size=8, epochs=4, verbose=0, callbacks=[Hangs()])
"""


def run(folder: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(body)
    plain = ("--directory", "runs", "--quiet", "--set", "mixed_precision=null")
    command = [sys.executable, "-m", "tfvolta", "run", *plain, *options, "train.py"]
    return subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


def only_evidence(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "runs").glob("*/evidence.json")
    return dict(json.loads(file.read_text()))


def test_a_process_that_hangs_writes_its_stacks_and_ends(tmp_path: Path) -> None:
    """On the stack of this process; 5 batches end, and the sixth hangs in the script's own callback."""
    done = run(tmp_path, TRAIN + FIT, "--set", "watchdog={stall_seconds: 2}")
    assert done.returncode == 75, done.stderr[-3000:]
    assert "this process has made no progress for 2 s in step 6 (training; limit 2 s)" in done.stderr
    (stacks,) = (tmp_path / "runs").glob("*/stacks.txt")
    text = stacks.read_text()
    assert 'File "train.py", line 14 in on_train_batch_end' in text and "step 6" in text
    assert 'File "train.py", line 14 in on_train_batch_end' in done.stderr
    evidence = only_evidence(tmp_path)
    assert evidence["status"] == "failed" and evidence["error"]["type"] == "StallError"
    assert str(stacks) in evidence["error"]["problems"][0]["fix"]
    assert evidence["outcomes"]["watchdog"]["status"] == "APPLIED"


def test_asked_only_to_tell_it_lets_training_go_on(tmp_path: Path) -> None:
    """Also: a fit that an exception has left is not watched, however long the script goes on."""
    slow = """
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            time.sleep(1.5)  # slow, and not stuck
class Stops(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        raise KeyError("mine")
import sys, time
model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[Slow()])
try:
    model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[Stops()])
except KeyError:
    print("LEFT", file=sys.stderr, flush=True)
    time.sleep(1.5)
print("END")
"""
    done = run(tmp_path, TRAIN + slow, "--set", "watchdog={stall_seconds: 0.5, end: false}")
    assert done.returncode == 0 and "END" in done.stdout, done.stderr[-3000:]
    before, after = done.stderr.split("LEFT\n")
    assert "has made no progress" in before and "has made no progress" not in after
    assert any("watchdog" in text and "in step 4" in text for text in only_evidence(tmp_path)["warnings"])


# Workers without TensorFlow, with the parts that a fit uses.
TRAINS = """
from tfvolta.evidence.place import Place
from tfvolta.knobs.stall_watch import BEGUN, ENDED, StallWatch
from tfvolta.session.presence import announce, heartbeat_of, place_of
place = place_of(os.environ, None, None)
announce(place)
watch = StallWatch({limit}, ends={ends})
watch.answers = True
watch.write_to(heartbeat_of(place, ""))
def fit(steps, hang_after):
    watch.arm()
    for step in range(1, steps + 1):
        watch.counts[BEGUN] = step
        if step > hang_after:
            print("HANGS", flush=True)
            block()
        watch.counts[ENDED] = step
"""


@once
def test_the_launcher_names_the_worker_for_which_the_others_wait(tmp_path: Path) -> None:
    """The workers' own watchdogs tell and do nothing here, as when no thread of a worker gets on."""
    body = TRAINS.format(limit=1.0, ends=True) + "fit(14, 11 if index == 1 else 13)\n"
    started = time.monotonic()
    done = launch(tmp_path, body, "--workers", "3", "--grace-seconds", "2", "--json")
    assert done.code == 75 and elapsed(started) < LIMIT_SECONDS / 2
    (line,) = [line for line in done.said if "no worker makes progress" in line]
    assert "worker 1 was last seen at step 12, " in line and line.endswith("workers 0 and 2 wait in step 14")
    assert summary(done)["failed"].startswith("worker 1 stands still (at step 12): worker 1 was last seen at step 12, ")
    assert summary(done)["failed"].endswith("workers 0 and 2 wait in step 14")
    for index in range(3):
        assert any(line.startswith(f"[worker {index}]") and "work.py" in line and "in fit" in line for line in done.err)


@once
def test_a_watchdog_that_only_tells_lets_the_launch_go_on(tmp_path: Path) -> None:
    body = TRAINS.format(limit=0.5, ends=False) + "print('READY', flush=True)\nfit(3, 2)\n"
    with Launched(tmp_path, body, "--workers", "2", "--grace-seconds", "1") as launched:
        launched.wait_for("no worker makes progress: workers 0 and 1 have all been in step 3")
        launched.wait_for(r"in fit", 2)
        launched.signal(15)
        assert launched.wait() == 143


@once
def test_the_step_of_a_worker_that_dies_is_the_one_it_was_in(tmp_path: Path) -> None:
    """Six steps take microseconds, and no file was written in between."""
    body = TRAINS.format(limit=100.0, ends=True) + textwrap.dedent("""
    fit(6, 6)
    if index == 1:
        os._exit(9)
    block()
    """)
    done = launch(tmp_path, body, "--workers", "2", "--grace-seconds", "0.2")
    assert done.code == 9
    assert any(line.startswith("tfvolta: worker 1 exited with code 9 (at step 6)") for line in done.said)


@once
def test_stopped_workers_are_noticed_and_killed(tmp_path: Path) -> None:
    body = TRAINS.format(limit=0.5, ends=True) + textwrap.dedent("""
    fit(3, 3)
    watch.check()
    os.kill(os.getpid(), signal.SIGSTOP)
    """)
    done = launch(tmp_path, body, "--workers", "2", "--grace-seconds", "0.5")
    assert done.code == 75
    assert any("SIGKILL to worker 0, worker 1" in line for line in done.said)


EVIDENCE = """
import tfvolta
from tfvolta.session import Origin, Session
config = tfvolta.load_config(run={"directory": "runs"})
for number in range(2):
    session = Session(config, environ=dict(os.environ), origin=Origin(script="work.py"))
    session.close("completed")
"""


@once
def test_each_worker_writes_evidence_of_its_own(tmp_path: Path) -> None:
    """Two sessions in each of three workers, all in one folder of runs."""
    done = launch(tmp_path, EVIDENCE, "--workers", "3", "--json")
    assert done.code == 0, done.err
    run_folder = tmp_path / "runs" / summary(done)["runs"][0]
    shared = {path.relative_to(run_folder).as_posix() for path in run_folder.rglob("evidence.json")}
    assert shared == {"evidence.json", "workers/worker-1/evidence.json", "workers/worker-2/evidence.json"}
    for path in shared:
        evidence = json.loads((run_folder / path).read_text())
        expected = "worker 0" if path == "evidence.json" else path.split("/")[1].replace("-", " ")
        assert evidence["worker"]["name"] == expected and evidence["run_id"] == run_folder.name
        assert evidence["worker"]["workers"] == 3 and evidence["status"] == "completed"
    assert len(list((tmp_path / "runs").glob("*/evidence.json"))) == 1 + 3
    shown = subprocess.run(
        [sys.executable, "-m", "tfvolta", "report", run_folder.name],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert "worker 0 of 3" in shown.stdout and "worker 1  Completed" in shown.stdout, shown.stdout
    assert "worker 2  Completed" in shown.stdout


@once
def test_without_a_launcher_no_two_processes_share_a_file(tmp_path: Path) -> None:
    """TF_CONFIG from elsewhere: four processes of one cluster in one folder, at the same time."""
    (tmp_path / "work.py").write_text("import os\n" + EVIDENCE)
    cluster = {"worker": [f"127.0.0.1:{20000 + index}" for index in range(4)]}
    environs = [
        clean_environment(TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}))
        for index in range(4)
    ]
    processes = [subprocess.Popen([sys.executable, "work.py"], cwd=tmp_path, env=environ) for environ in environs]
    assert [process.wait(LIMIT_SECONDS) for process in processes] == [0] * 4
    folders = sorted(path.parent.name for path in (tmp_path / "runs").glob("*/evidence.json"))
    assert len(folders) == 8
    for index in range(1, 4):
        assert sum(name.endswith(f"-worker-{index}") for name in folders) == 2
    pids = [json.loads(path.read_text())["pid"] for path in (tmp_path / "runs").glob("*/evidence.json")]
    assert sorted(pids) == sorted(2 * [process.pid for process in processes])


@once
@pytest.mark.skipif(os.environ.get("NO_COLOR") is not None, reason="colour is switched off")
def test_prefixes_are_coloured_on_a_terminal_only(tmp_path: Path) -> None:
    import pty

    (tmp_path / "work.py").write_text("print('hello')\n")
    command = [sys.executable, "-m", "tfvolta", "launch", "--workers", "2", "--quiet", "work.py"]
    terminal, end = pty.openpty()
    with subprocess.Popen(command, cwd=tmp_path, env=clean_environment(), stdout=end, stderr=subprocess.PIPE) as popen:
        os.close(end)
        assert popen.wait(LIMIT_SECONDS) == 0
        text = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert "\x1b[36m[worker 0]\x1b[0m hello" in text and "\x1b[33m[worker 1]\x1b[0m hello" in text
