#!/usr/bin/env python3
"""What Keras 3 without XLA gains from tfvolta's kernels: ResNet-50 and two LSTM layers, beside tf_keras.

    python3 benchmarks/keras3_kernels/measure.py --out results.jsonl
    python3 benchmarks/keras3_kernels/measure.py --only 'lstm/.*'
    python3 benchmarks/keras3_kernels/measure.py --list
    python3 benchmarks/keras3_kernels/measure.py --quick          # tiny models, to try the script without a GPU

Each row is a process of its own with a time limit; its result is printed and appended to the file at once, as one JSON
line. Rows that are in the file without an error are left out, so that a measurement can be continued.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator, Optional

import workloads

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESNET = ("keras3", "kernels", "tf_keras", "kernels+persistent")
LSTM = ("keras3", "mended", "kernels", "tf_keras", "keras3 floats", "tf_keras floats", "kernels floats")
# What each variant is: callback's arguments, environment, and inputs.
VARIANTS: dict[str, dict[str, Any]] = {
    "keras3": {},
    "mended": {"kernels": {"fused_batch_norm": None, "cudnn_rnn": None}},
    "kernels": {"kernels": {"fused_batch_norm": "auto", "cudnn_rnn": "auto"}},
    "kernels+persistent": {
        "kernels": {"fused_batch_norm": "auto", "cudnn_rnn": "auto"},
        "environ": {"TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT": "1"},
    },
    "tf_keras": {"environ": {"TF_USE_LEGACY_KERAS": "1"}},
}


def rows() -> Iterator[dict[str, Any]]:
    """Every row, the ones that matter most first; what is compared lies side by side."""
    for name in LSTM:
        variant, _, floats = name.partition(" ")
        yield {"kind": "fit", "model": "lstm", "variant": variant, "floats": bool(floats)}
    for name in RESNET:
        yield {"kind": "fit", "model": "resnet50", "variant": name}
    yield {"kind": "sequences", "variant": "keras3"}
    yield {"kind": "norms", "variant": "keras3"}


def name_of(row: dict[str, Any]) -> str:
    """A name such as ``lstm/kernels`` or ``lstm/keras3 floats``."""
    if row["kind"] != "fit":
        return str(row["kind"])
    return f"{row['model']}/{row['variant']}{' floats' if row.get('floats') else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="file that results are appended to")
    parser.add_argument("--quick", action="store_true", help="tiny models, on a CPU too")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--only", default="", help="pattern that the name of a row must match from its start")
    parser.add_argument("--again", type=int, default=1, help="how often the rows are measured, one round after another")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one row")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further row is started")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        result = work(json.loads(arguments.worker))
        print("RESULT " + json.dumps(result), flush=True)
        return 0
    chosen = [row for row in rows() if re.match(arguments.only, name_of(row))]
    if arguments.list:
        print("\n".join(name_of(row) for row in chosen))
        return 0
    return measure(arguments, chosen)


def measure(arguments: argparse.Namespace, chosen: list[dict[str, Any]]) -> int:
    """Measures the rows, round by round; the number of those that failed."""
    out, began, failed = arguments.out, time.monotonic(), 0
    known: set[tuple[str, int]] = set()
    if out is not None and out.exists():
        lines = map(json.loads, out.read_text(encoding="utf-8").splitlines())
        known = {(line["name"], line["round"]) for line in lines if "error" not in line}
    for turn in range(arguments.again):
        for row in chosen:
            name = name_of(row)
            if (name, turn) in known:
                continue
            if time.monotonic() - began > arguments.budget:
                print(json.dumps({"name": name, "round": turn, "left_out": "no time left"}), flush=True)
                continue
            result = {"name": name, "round": turn, **execute({**row, "quick": arguments.quick}, arguments.limit)}
            failed += "error" in result
            print(json.dumps(result), flush=True)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
    return failed


def execute(row: dict[str, Any], limit: float) -> dict[str, Any]:
    """One row in a process of its own, ended when the limit has passed; its result, or what went wrong."""
    environ = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    environ.pop("TF_USE_LEGACY_KERAS", None)
    environ.update(VARIANTS[row["variant"]].get("environ", {}))
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--worker", json.dumps(row)]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        code = wait(process, limit)
        log.seek(0)
        text = log.read()
    lines = [line[7:] for line in text.splitlines() if line.startswith("RESULT ")]
    seconds = round(time.monotonic() - began, 1)
    if lines and code == 0:
        return {**json.loads(lines[-1]), "wall_seconds": seconds}
    problem = f"ended after {limit:g} s" if code is None else f"exit code {code}"
    return {"error": problem, "tail": text[-1500:], "wall_seconds": seconds}


def wait(process: subprocess.Popen[bytes], seconds: float) -> Optional[int]:
    """Exit code of a process; None where it had to be killed, with all that it started."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


# ---------------------------------------------------------------------------------------------------- inside of a row


def work(row: dict[str, Any]) -> dict[str, Any]:
    """Measures one row in this process."""
    if row["kind"] != "fit":
        return workloads.sequences(row["quick"]) if row["kind"] == "sequences" else workloads.norms(row["quick"])
    import tensorflow as tf

    from benchmarks.epoch_clock import make_clock

    keras = tf.keras
    legacy = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
    keras.mixed_precision.set_global_policy("mixed_float16")
    keras.utils.set_random_seed(0)
    make = workloads.resnet50 if row["model"] == "resnet50" else workloads.lstm
    model, data, batch, steps, epochs = make(keras, tf, row)
    asked = VARIANTS[row["variant"]].get("kernels")
    callbacks = [make_clock(keras)]
    if asked is not None:
        import tfvolta

        callbacks.insert(0, tfvolta.callbacks.Kernels(**asked, strict=False))
    history = model.fit(data, steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=callbacks)
    seconds = callbacks[-1].seconds[1:]
    found: dict[str, Any] = {
        "examples_per_second": round(batch * steps / min(seconds), 1),
        "examples_per_second_by_epoch": [round(batch * steps / each, 1) for each in seconds],
        "step_ms": round(1000 * min(seconds) / steps, 2),
        "median_step_ms": round(1000 * statistics.median(seconds) / steps, 2),
        "first_epoch_seconds": round(callbacks[-1].seconds[0], 1),
        "loss": [round(float(loss), 5) for loss in history.history["loss"]],
        "batch": batch,
        "operations": workloads.operations(model),
        "versions": {
            "tensorflow": tf.__version__,
            "keras": importlib.metadata.version("tf_keras" if legacy else "keras"),
            "tfvolta": "this checkout" if asked is not None else None,
        },
    }
    if tf.config.list_physical_devices("GPU"):
        found["peak_gib"] = round(tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30, 2)
    if asked is not None:
        endings = callbacks[0].session.endings
        found["outcomes"] = {name: ending.outcome.to_json() for name, ending in endings.items()}
    if row["model"] == "lstm":
        found["profile"] = workloads.profile(model, data)
    return found


if __name__ == "__main__":
    sys.exit(main())
