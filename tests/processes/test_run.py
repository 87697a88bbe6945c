"""``tfvolta run`` around scripts that know nothing of it, in processes of their own, on the stack of this process."""

from __future__ import annotations

import importlib.util
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

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import sys
import numpy as np
import tensorflow as tf
keras = tf.keras
x = np.random.RandomState(0).randn(64, 8).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu", input_shape=(8,)), keras.layers.Dense(2)])
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False)
print("LOSS", history.history["loss"][-1])
"""


def _script(folder: Path, body: str = TRAIN) -> Path:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(body))
    assert "tfvolta" not in path.read_text()
    return path


def _command(folder: Path, script: Path, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
    run = [sys.executable, "-m", "tfvolta", "run", "--directory", str(folder / "runs")]
    return [*run, *options, str(script), *arguments]


def _run(folder: Path, script: Path, *options: str, arguments: tuple[str, ...] = (), environ: Any = None) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **(environ or {})}
    return subprocess.run(
        _command(folder, script, *options, arguments=arguments),
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=folder,
    )


def _evidence(folder: Path) -> dict[str, Any]:
    files = sorted((folder / "runs").glob("*/evidence.json"))
    assert len(files) == 1, files
    return json.loads(files[0].read_text())


def _no_traceback_of_ours(text: str) -> None:
    assert "Traceback" not in text, text


def test_digits_under_the_embedded_default(tmp_path: Path) -> None:
    script = ROOT / "examples" / "digits.py"
    assert "tfvolta" not in script.read_text()
    done = _run(tmp_path, script)
    assert done.returncode == 0, done.stderr[-4000:]
    evidence = _evidence(tmp_path)
    assert evidence["status"] == "completed" and evidence["error"] is None
    outcomes = evidence["outcomes"]
    assert outcomes["retrofit"]["status"] == "APPLIED" or outcomes["policy"]["status"] == "APPLIED"
    assert outcomes["loss_scale"]["status"] == "APPLIED"
    assert "PENDING" not in {outcome["status"] for outcome in outcomes.values()}
    assert not {"LATE", "NO_EFFECT"} & {outcome["status"] for outcome in outcomes.values()}
    throughput = evidence["measurements"]["throughput"]
    assert throughput["examples_per_second"] > 0
    assert evidence["measurements"]["loss_scale"]["skipped"] is not None
    accuracy = float(done.stdout.split("test accuracy")[1].split()[0])
    assert accuracy > 0.9, done.stdout[-500:]


def test_scripts_own_arguments_name_and_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 41\n")
    script = _script(tmp_path, "import sys, neighbour\nprint(__name__, sys.argv[1:], neighbour.VALUE + 1, __file__)\n")
    done = _run(tmp_path, script, "--set", "mixed_precision=null", arguments=("--its", "--own=1", "--json"))
    assert "__main__ ['--its', '--own=1', '--json'] 42" in done.stdout
    assert done.returncode in (0, 1)


def test_an_exception_of_the_script_is_its_own(tmp_path: Path) -> None:
    done = _run(tmp_path, _script(tmp_path, TRAIN + "\nraise KeyError('mine')\n"))
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr and "train.py" in done.stderr
    assert "runpy" not in done.stderr and "tfvolta/script" not in done.stderr
    evidence = _evidence(tmp_path)
    assert evidence["status"] == "failed" and evidence["error"]["type"] == "KeyError"
    assert evidence["outcomes"]["retrofit"]["status"] in ("APPLIED", "NOT_APPLICABLE")


def test_exit_codes_pass_through(tmp_path: Path) -> None:
    done = _run(tmp_path, _script(tmp_path, "import sys\nsys.exit(3)\n"))
    assert done.returncode == 3
    assert _evidence(tmp_path)["status"] == "failed"


def test_a_script_that_never_fits_is_told(tmp_path: Path) -> None:
    done = _run(tmp_path, _script(tmp_path, "import tensorflow as tf\nprint(tf.constant(1.0) + 1)\n"))
    assert done.returncode == 1
    assert "never called model.fit" in done.stderr


@pytest.mark.parametrize(
    "options, word",
    [
        (("--set", "devices.visible=[7]"), "devices.visible"),
        (("--set", "xla.jti=auto"), "xla.jit"),
        (("--config", "nowhere.yaml"), "nowhere.yaml"),
        (("--set", "mixed_precision.policy=mixed_fp16"), "mixed_float16"),
        (("--set", "devices.memory_growth=true", "--set", "devices.memory_limit_mb=100"), "logical device"),
    ],
)
def test_unusable_input_is_refused_before_the_script_runs(tmp_path: Path, options: tuple[str, ...], word: str) -> None:
    script = _script(tmp_path, "print('SCRIPT RAN')\n")
    done = _run(tmp_path, script, *options)
    assert done.returncode == 2, done.stderr
    assert "SCRIPT RAN" not in done.stdout and word in done.stderr
    _no_traceback_of_ours(done.stderr)


def test_a_refused_plan_is_evidence(tmp_path: Path) -> None:
    done = _run(tmp_path, _script(tmp_path), "--set", "devices.visible=[7]")
    assert done.returncode == 2
    evidence = _evidence(tmp_path)
    assert evidence["status"] == "refused" and evidence["conflicts"]


def test_missing_script_and_run_directory_in_the_way(tmp_path: Path) -> None:
    done = _run(tmp_path, tmp_path / "none.py")
    assert done.returncode == 2 and "no such file" in done.stderr
    _no_traceback_of_ours(done.stderr)
    (tmp_path / "runs").write_text("a file")
    done = _run(tmp_path, _script(tmp_path))
    assert done.returncode == 2 and "runs" in done.stderr
    _no_traceback_of_ours(done.stderr)


def test_the_environment_is_contradicted_loudly(tmp_path: Path) -> None:
    done = _run(
        tmp_path, _script(tmp_path), "--set", "devices.inter_op_threads=2", environ={"TF_NUM_INTEROP_THREADS": "7"}
    )
    assert done.returncode == 2 and "TF_NUM_INTEROP_THREADS=7" in done.stderr
    _no_traceback_of_ours(done.stderr)


LONG = (
    TRAIN.replace("epochs=2", "epochs=100000")
    .replace("verbose=0", "verbose=0, callbacks=[Tell()]")
    .replace(
        "history =",
        "class Tell(keras.callbacks.Callback):\n    def on_epoch_end(self, epoch, logs=None):\n"
        "        if epoch == 1: print('GOING', flush=True)\nhistory =",
    )
)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_and_killed_runs_keep_their_evidence(tmp_path: Path, how: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    script = _script(tmp_path, LONG)
    with subprocess.Popen(
        _command(tmp_path, script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tmp_path,
        # A shell starts its background jobs with SIGINT ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        line = process.stdout.readline() if process.stdout else ""
        assert "GOING" in line, process.stderr.read() if process.stderr else ""
        time.sleep(0.5)
        process.send_signal(how)
        process.communicate(timeout=120)
    evidence = _evidence(tmp_path)
    assert evidence["outcomes"]["loss_scale"]["status"] == "APPLIED"
    if how is signal.SIGINT:
        assert process.returncode == 130 and evidence["status"] == "interrupted"
    else:
        assert evidence["status"] == "running" and evidence["pid"] == process.pid


def test_json_is_the_last_line_and_the_scripts_output_stays(tmp_path: Path) -> None:
    done = _run(tmp_path, _script(tmp_path), "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    assert any(line.startswith("LOSS") for line in lines)
    summary = json.loads(last)
    assert summary["status"] == "completed" and Path(summary["run"]).is_dir()
    assert Path(summary["evidence"]) == Path(summary["run"]) / "evidence.json" and Path(summary["evidence"]).is_file()


def test_mirrored_and_steps_per_execution_in_an_unmodified_script(tmp_path: Path) -> None:
    options = ("--set", "strategy={kind: mirrored, logical_cpus: 2}", "--set", "mixed_precision=null")
    options = (*options, "--set", "xla=null")
    plain = _run(tmp_path, _script(tmp_path), "--quiet", "--set", "mixed_precision=null", "--set", "xla=null")
    for path in (tmp_path / "runs").glob("*/evidence.json"):
        path.unlink()
    both = _run(tmp_path, _script(tmp_path), *options, "--set", "fit.steps_per_execution=4")
    assert both.returncode == 0, both.stderr[-4000:]
    evidence = _evidence(tmp_path)
    assert evidence["outcomes"]["strategy"]["status"] == "APPLIED"
    assert evidence["outcomes"]["strategy"]["observed"]["replicas"] == 2
    assert evidence["outcomes"]["steps_per_execution"]["status"] == "APPLIED"
    assert evidence["measurements"]["throughput"]["epochs"][-1]["steps"] == 8
    losses = [float(done.stdout.split("LOSS")[1]) for done in (plain, both)]
    assert losses[0] == losses[0] and losses[1] == losses[1]


def test_device_settings_of_the_script_itself_still_work(tmp_path: Path) -> None:
    boilerplate = TRAIN.replace(
        "keras = tf.keras",
        "keras = tf.keras\nfor gpu in tf.config.list_physical_devices('GPU'):\n"
        "    tf.config.experimental.set_memory_growth(gpu, True)\n"
        "tf.config.threading.set_inter_op_parallelism_threads(2)",
    )
    done = _run(tmp_path, _script(tmp_path, boilerplate))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(importlib.util.find_spec("tf_keras") is None, reason="needs tf_keras beside Keras 3")
def test_a_script_that_chooses_tf_keras_itself(tmp_path: Path) -> None:
    script = _script(
        tmp_path, 'import os\nos.environ["TF_USE_LEGACY_KERAS"] = "1"\n' + TRAIN + "print(keras.__name__)\n"
    )
    done = _run(tmp_path, script, environ={"TF_USE_LEGACY_KERAS": ""})
    assert done.returncode == 0, done.stderr[-3000:]
    evidence = _evidence(tmp_path)
    assert evidence["stack"] == "tf_keras"
    assert evidence["outcomes"]["retrofit"]["status"] == "APPLIED"
