"""Steps a second with XLA on, off, and as ``xla.jit: auto`` decides, for models that its rules were not written on.

Each measurement is a process of its own with a time limit; on, off and auto take turns. One JSON line each.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, Optional

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
MODES = ("off", "on", "auto")


def measured(name: str, mode: str, policy: str, full: bool, seconds: float) -> dict[str, Any]:
    """Trains a model for some seconds and times its steps; runs in a process of its own."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    from benchmarks.jit_auto.models import MODELS
    from tfvolta.bridge import bridge_for
    from tfvolta.callbacks import ApplyPlan
    from tfvolta.config import load_config
    from tfvolta.session import Origin, Session

    keras = _keras(tf)
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(policy)
    work = MODELS[name](keras, full)
    bridge = bridge_for(work.model)
    work.model.compile("adam", work.loss, jit_compile=False)
    jit = {"on": "model", "off": "off", "auto": "auto"}[mode]
    session = Session(
        load_config(xla={"jit": jit}, run={"strict": False}), stack=bridge.stack, origin=Origin(record=False)
    )
    dataset = tf.data.Dataset.from_tensors(work.batch).repeat()
    began = time.perf_counter()
    work.model.fit(dataset, steps_per_epoch=1, verbose=0, callbacks=[ApplyPlan(session)])
    first = time.perf_counter() - began
    steps, rates = 1, []
    while steps < 1_000_000 and len(rates) < 5:  # five epochs of about a fifth of the time each
        began = time.perf_counter()
        work.model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=[ApplyPlan(session)])
        passed = time.perf_counter() - began
        if passed < seconds / 5:
            steps = max(steps + 1, min(10 * steps, int(steps * seconds / 5 / max(passed, 1e-6)) + 1))
            continue
        rates.append(steps / passed)
    state = bridge.jit(work.model)
    return {
        "compiled": state.effective,
        "why": session.endings["jit"].outcome.message,
        "first_step_seconds": first,
        "steps_per_second": sorted(rates)[len(rates) // 2],
        "rates": rates,
        "stack": bridge.stack,
        "tensorflow": tf.__version__,
        "devices": [device.name for device in tf.config.list_logical_devices()],
    }


def _keras(tf: Any) -> Any:
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") and not tf.__version__.startswith("2.15"):
        import tf_keras

        return tf_keras
    import keras

    return keras


def in_a_process(arguments: argparse.Namespace, name: str, mode: str) -> dict[str, Any]:
    """One measurement in a process of its own; what became of it where it did not end well."""
    command = [sys.executable, __file__, "--worker", name, mode, "--policy", arguments.policy]
    command += ["--seconds", str(arguments.seconds), *(["--full"] if arguments.full else [])]
    row: dict[str, Any] = {"model": name, "mode": mode, "policy": arguments.policy, "full": arguments.full}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.limit, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {**row, "failed": f"had not ended after {arguments.limit:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {**row, "failed": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    return {**row, **json.loads(lines[-1])}


def verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one model: the better choice, what auto chose, and how far that is from the better one."""
    best = {
        mode: max((row.get("steps_per_second", 0.0) for row in rows if row["mode"] == mode), default=0.0)
        for mode in MODES
    }
    better = "on" if best["on"] > best["off"] else "off"
    chosen: Optional[bool] = next(
        (row["compiled"] for row in rows if row["mode"] == "auto" and "compiled" in row), None
    )
    share = best["on" if chosen else "off"] / best[better] if best[better] else None
    return {
        "summary": rows[0]["model"],
        **best,
        "better": better,
        "auto_compiles": chosen,
        "auto_share_of_better": share,
    }


def main() -> None:
    """Measures every model and prints a line for each measurement and each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", help="names; all when absent")
    parser.add_argument("--policy", default="mixed_float16")
    parser.add_argument("--full", action="store_true", help="sizes for a GPU; tiny ones otherwise")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="timed training of each measurement")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds after which a process is ended")
    parser.add_argument("--worker", nargs=2, metavar=("MODEL", "MODE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measured(*arguments.worker, arguments.policy, arguments.full, arguments.seconds)), flush=True)
        return
    from benchmarks.jit_auto.models import MODELS

    for name in arguments.models or MODELS:
        rows = []
        for number in range(arguments.rounds):
            for mode in MODES if number % 2 == 0 else reversed(MODES):
                rows.append(in_a_process(arguments, name, mode))
                print(json.dumps({**rows[-1], "round": number}), flush=True)
        print(json.dumps(verdict(rows)), flush=True)


if __name__ == "__main__":
    main()
