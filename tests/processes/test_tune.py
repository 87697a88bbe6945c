"""``tfvolta tune`` around the scripts that people have: whatever they do is said, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.stack import STACK
from tfvolta.tune.result import TuneResult
from tfvolta.tune.speed_process import InterruptedTrialError, Limits, SpeedProcess
from tfvolta.tune.speed_request import SpeedRequest
from tfvolta.tune.speed_trial import SpeedTrial

# What differs between stacks is in the runs of scripts and in the bridge, which have tests of their own.
pytestmark = pytest.mark.skipif(STACK != "keras3", reason="once is enough: other tests run scripts on every stack")

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ("mixed_precision.policy=float32", "xla.jit=off", "kernels=null", "run.strict=false")
LIMITS = Limits(120, 60)
TRAINS = """
    import numpy as np
    import tensorflow as tf
    keras = tf.keras
    x = np.random.RandomState(0).randn(256, 8).astype("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
"""
FIT = TRAINS + "    model.fit(x, x[:, :1], batch_size=32, verbose=0)\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def script(folder: Path, body: str) -> str:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(body), encoding="utf-8")
    return str(path)


def tried(folder: Path, body: str, limits: Limits = LIMITS, **how: Any) -> SpeedTrial:
    """One trial of a script."""
    settings = {"blocks": 2, "block_seconds": 0.02, "warmup_seconds": 0.0, **how}
    request = SpeedRequest(None, PLAIN, script(folder, body), (), **settings)
    return SpeedProcess(limits, lambda: False).run(request)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_fit_of_some_steps_goes_on_until_enough_is_timed(tmp_path: Path) -> None:
    """It trains under a second, has callbacks that would end it or write, and its second fit is never reached."""
    body = (
        TRAINS
        + """
    calls = [keras.callbacks.EarlyStopping("loss", min_delta=9.0), keras.callbacks.CSVLogger("log.csv")]
    model.fit(x, x[:, :1], batch_size=32, verbose=0, callbacks=calls, validation_data=(x, x[:, :1]))
    open("after", "w").close()
    model.fit(x, x[:, :1])
    """
    )
    os.chdir(tmp_path)
    try:
        trial = tried(tmp_path, body, describe=True)
    finally:
        os.chdir(ROOT)
    assert trial.ending == "measured", trial.reason
    assert len(trial.blocks) == 2 and trial.examples_per_second and trial.losses
    assert trial.traits["kinds"]["Dense"] == 2 and trial.traits["batch"] == 32
    assert any("CSVLogger, EarlyStopping" in note for note in trial.notes)
    assert {path.name for path in tmp_path.iterdir()} == {"train.py"}


def test_the_second_of_two_fits_is_timed_where_that_is_asked(tmp_path: Path) -> None:
    twice = (
        TRAINS
        + """
    model.fit(x, x[:, :1], batch_size=32, verbose=0)
    model.fit(x[:64], x[:64, :1], batch_size=64, verbose=0)
    """
    )
    trial = tried(tmp_path, twice, fit=2, describe=True)
    assert trial.ending == "measured" and trial.traits["batch"] == 64


@pytest.mark.parametrize(
    ("body", "ending", "said"),
    [
        ("print('nothing to train')", "refused", "never called Keras's model.fit"),
        ("import a_package_that_is_not_there", "crash", "No module named 'a_package_that_is_not_there'"),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('--data', required=True); p.parse_args()",
            "crash",
            "the following arguments are required: --data",
        ),
        ("import sys; sys.stdout.buffer.write(bytes(range(256)) * 50); sys.exit(3)", "crash", "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crash", "signal 11"),
        ("import time; time.sleep(600)", "hang", "model.fit had not begun"),
        (
            "x = bytearray(10**9); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(60)",
            "out of memory",
            "the limit is 600 MiB",
        ),
    ],
)
def test_scripts_that_do_not_train(tmp_path: Path, body: str, ending: str, said: str) -> None:
    limits = Limits(8.0 if ending == "hang" else 120.0, 60.0, 600 * 2**20 if ending == "out of memory" else None)
    trial = tried(tmp_path, body, limits)
    assert (trial.ending, trial.fits) == (ending, False)
    assert said in trial.reason and trial.reason.isprintable() and trial.seconds < 60


def test_a_fit_of_the_scripts_own_that_ignores_callbacks(tmp_path: Path) -> None:
    body = """
    import tensorflow as tf
    class Own(tf.keras.Model):
        def fit(self, x, callbacks=None):
            print("a loop of its own")
    Own().fit([1])
    """
    assert "never called Keras's model.fit" in tried(tmp_path, body).reason


def test_a_compilation_that_hangs_costs_its_limit(tmp_path: Path) -> None:
    hangs = (
        TRAINS.replace('model.compile("adam", "mse")', "")
        + """
    import time
    def loss(y, p):
        time.sleep(600)
        return p
    model.compile("adam", loss)
    model.fit(x, x[:, :1], verbose=0)
    """
    )
    trial = tried(tmp_path, hangs, Limits(120, 1.0))
    assert trial.ending == "compile timeout" and "after 1 s" in trial.reason


def test_children_that_a_script_leaves_behind_are_ended(tmp_path: Path) -> None:
    """One stays in the group, the other has a session of its own and no parent that lives."""
    body = """
    import os, subprocess, sys
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    first = subprocess.Popen(sleep)
    if os.fork() == 0:
        os.setsid()
        second = subprocess.Popen(sleep, start_new_session=True)
        open({path!r}, "w").write(f"{{first.pid}} {{second.pid}}")
        os._exit(0)
    os.wait()
    """.format(path=str(tmp_path / "pids"))
    trial = tried(tmp_path, body)
    assert trial.ending == "refused"
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2 and not any(is_there(pid) for pid in pids)


def test_a_search_that_is_told_to_end_leaves_no_process(tmp_path: Path) -> None:
    body = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    request = SpeedRequest(None, PLAIN, script(tmp_path, body), ())
    with pytest.raises(InterruptedTrialError):
        SpeedProcess(Limits(60), (tmp_path / "pid").exists).run(request)
    written = (tmp_path / "pid").read_text()
    assert not written or not is_there(int(written))


def tune(folder: Path, path: str, *words: str) -> list[str]:
    settings = [part for word in PLAIN for part in ("--set", word)]
    directory = ["--directory", str(folder / "runs")]
    return [sys.executable, "-m", "tfvolta", "tune", *settings, *directory, *words, path]


def test_a_search_from_the_command_line_and_its_continuation(tmp_path: Path) -> None:
    """Live: interrupted in its first trial's place, then to the end; the result is what the schema says."""
    path = script(tmp_path, FIT)
    command = tune(tmp_path, path, "--trials", "2", "--repeats", "2", "--measure-seconds", "0.3", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "trial 0:" in line:
                process.send_signal(signal.SIGTERM)
                break
        errors = process.stderr.read()
        assert process.wait(60) == 130 and "1 trials are kept, and the same command goes on" in errors
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode in (0, 1), done.stderr
    assert "1 trials are known from history" in done.stderr
    result = TuneResult.model_validate_json(done.stdout)
    assert len(result.trials) == 2 and result.trials[0].from_history and result.trials[1].settings
    assert result.baseline.examples_per_second and result.verdict in ("gain", "no gain", "loss left the band")
    assert {each.kind for each in result.pruned} >= {"not_applicable"}
    assert result.overhead.trial_seconds < time.monotonic() - began
    (kept,) = (tmp_path / "runs" / "tune").glob("*/tune.json")
    assert json.loads(kept.read_text())["fingerprint"] == result.fingerprint
    if result.tuned_config is not None:
        assert "extends: tfvolta:default" in Path(result.tuned_config).read_text()


def test_a_baseline_that_cannot_be_measured_ends_the_search_with_a_clear_message(tmp_path: Path) -> None:
    done = subprocess.run(tune(tmp_path, script(tmp_path, "1 / 0")), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "cannot be measured as it is" in done.stderr and "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr
