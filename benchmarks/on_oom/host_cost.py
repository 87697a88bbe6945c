#!/usr/bin/env python3
"""What ``memory.on_oom: report`` costs the host in a step: processor time of two models in turns, in one process.

    python3 benchmarks/on_oom/host_cost.py --jit off --output results/DATE_cpu.jsonl

Processor time of the thread that calls ``fit``, and of the whole process; on a busy machine it is steadier than the
clock. The model is small on purpose, so that a step is little else than what the host does. What a device does is
measured by ``measure.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfvolta.callbacks.out_of_memory import OutOfMemory  # noqa: E402
from tfvolta.measure.statistics import paired_difference  # noqa: E402

keras = tf.keras
CLOCKS = {"thread": time.thread_time, "process": time.process_time}


def model(jit: bool) -> Any:
    """Thirteen small layers."""
    body = [keras.layers.Dense(64, activation="relu") for _ in range(12)]
    made = keras.Sequential([keras.Input((64,)), *body, keras.layers.Dense(1)])
    made.compile(keras.optimizers.Adam(1e-4), "mse", jit_compile=jit)
    return made


def main() -> None:
    """Prints the difference in microseconds of a step, by clock, with an interval over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jit", choices=("on", "off"), default="off")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    x = np.random.default_rng(0).random((32, 64), dtype=np.float32)
    data = tf.data.Dataset.from_tensors((x, x[:, :1])).repeat(arguments.steps)
    guarded: dict[str, list[Any]] = {"off": [], "report": [OutOfMemory("report")]}
    models = {name: model(arguments.jit == "on") for name in guarded}
    seconds: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in CLOCKS} for name in guarded}
    for turn in range(arguments.rounds + 1):
        for name in random.sample(list(models), len(models)):
            began = {clock: read() for clock, read in CLOCKS.items()}
            models[name].fit(data, verbose=0, callbacks=list(guarded[name]))
            for clock, read in CLOCKS.items():
                if turn:  # the first traces
                    seconds[name][clock].append((read() - began[clock]) / arguments.steps)
    for clock in CLOCKS:
        off, on = seconds["off"][clock], seconds["report"][clock]
        cost = paired_difference([1e6 * each for each in on], [1e6 * each for each in off])
        line = {"jit": arguments.jit, "clock": clock, "off_us": round(1e6 * statistics.median(off), 1)}
        line.update(cost_us=round(cost.estimate, 1), low_us=round(cost.low, 1), high_us=round(cost.high, 1))
        line.update(rounds=arguments.rounds, steps=arguments.steps, cores=os.cpu_count(), load=os.getloadavg()[0])
        line.update(tensorflow=tf.__version__, date=time.strftime("%Y-%m-%d"))
        print(json.dumps(line), flush=True)
        if arguments.output:
            with arguments.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
