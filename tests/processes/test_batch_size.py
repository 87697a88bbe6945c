"""Trials of a batch size: whatever a script does, its trial ends, says how, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Optional

import pytest

from tfvolta.tune.trial import Ending, Trial
from tfvolta.tune.trial_process import TrialProcess
from tfvolta.tune.trial_request import TrialRequest

ROOT = Path(__file__).resolve().parents[2]
HANGS = """
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open({path!r} + ".part", "w").write(str(child.pid))
    import os; os.replace({path!r} + ".part", {path!r})
    time.sleep(600)
"""
TRAINS = """
    import sys
    import numpy as np
    import tensorflow as tf

    keras = tf.keras

    class Greedy(keras.layers.Layer):
        def call(self, inputs):
            size = tf.where(tf.shape(inputs)[0] > 16, 2**23, 1)
            return inputs + 1e-30 * tf.reduce_sum(tf.random.uniform([size, size]))

        def compute_output_shape(self, shape):
            return shape

    model = keras.Sequential([keras.Input((3,)), Greedy(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.ones((64, 3), "float32")
    try:
        model.fit(x, x[:, :1], batch_size=4, epochs=1000, verbose=0)
    except Exception:
        print("a script that goes on after an error")
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def tried(folder: Path, body: str, seconds: float = 120.0, limit: Optional[int] = None, batch: int = 8) -> Trial:
    """One trial of a script."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(body))
    overrides = ("mixed_precision.policy=float32", "xla.jit=off", "run.strict=false")
    request = TrialRequest(None, overrides, str(script), (), batch, 2, 1, "")
    return TrialProcess(seconds, limit).run(request)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Whether a process ends before long."""
    deadline = time.monotonic() + 30
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_there(pid)


def test_a_script_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    trial = tried(tmp_path, HANGS.format(path=str(path)), seconds=20.0)
    assert trial.ending is Ending.TIMEOUT and "20 s" in trial.reason
    assert gone(int(path.read_text()))


def test_a_script_that_kills_its_process_is_a_crash(tmp_path: Path) -> None:
    trial = tried(tmp_path, "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGSEGV)")
    assert trial.ending is Ending.CRASH and "signal 11" in trial.reason


def test_an_error_of_the_script_is_a_crash_with_its_words(tmp_path: Path) -> None:
    trial = tried(tmp_path, "raise ValueError('no such column')")
    assert trial.ending is Ending.CRASH and trial.reason == "ValueError: no such column"


def test_the_hosts_memory_is_bounded(tmp_path: Path) -> None:
    body = "import time\nheld = bytearray(b'x') * (700 * 2**20)\ntime.sleep(600)"
    trial = tried(tmp_path, body, limit=500 * 2**20)
    assert trial.ending is Ending.OUT_OF_MEMORY and "limit" in trial.reason
    assert trial.peak_bytes["host"] > 500 * 2**20


def test_a_script_without_fit_is_refused(tmp_path: Path) -> None:
    trial = tried(tmp_path, "print('nothing to see')")
    assert trial.ending is Ending.REFUSED and "model.fit" in trial.reason


def test_a_config_that_cannot_work_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    request = TrialRequest(None, ("xla.jit=nonsense",), str(script), (), 8, 2, 1, "")
    trial = TrialProcess(60.0).run(request)
    assert trial.ending is Ending.REFUSED and "xla.jit" in trial.reason


def test_trials_end_with_the_command_that_started_them(tmp_path: Path) -> None:
    path, script = tmp_path / "pid", tmp_path / "train.py"
    script.write_text(textwrap.dedent(HANGS.format(path=str(path))))
    command = [sys.executable, "-m", "tfvolta", "batch-size", str(script)]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(int(path.read_text()))


def test_the_largest_batch_of_a_script_that_is_left_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINS))
    options = ["--start", "16", "--steps", "1", "--json", "--output", str(tmp_path / "found.yaml")]
    for setting in ("mixed_precision.policy=float32", "xla.jit=off"):
        options += ["--set", setting]
    command = [sys.executable, "-m", "tfvolta", "batch-size", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["largest"] == 16
    assert [(each["batch"], each["ending"]) for each in found["trials"]] == [
        (16, "fits"),
        (32, "out of memory"),
        (24, "out of memory"),
    ]
    assert found["advice"]["learning_rate"] == pytest.approx(0.4)  # 0.1 at 4 rows, and SGD
    assert "batch_size: 16" in (tmp_path / "found.yaml").read_text()


def test_a_batch_larger_than_the_data_is_said(tmp_path: Path) -> None:
    trial = tried(tmp_path, TRAINS.replace("> 16", "> 1000"), batch=72)
    assert trial.ending is Ending.LARGER_THAN_DATA
