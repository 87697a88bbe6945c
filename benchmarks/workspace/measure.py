"""Memory against speed over limits of cuDNN's scratch memory, one JSON line a limit, on a GPU.

    python benchmarks/workspace/measure.py --model ResNet50 --batch 128 --limits 64,128,256,512,1024,2048,4096,8192

TensorFlow's convolution kernels read the limit once a process, so each limit is measured in a process of its own; the
order is shuffled and gone through ``--rounds`` times, so that drift of a shared host falls on all of them. A limit that
runs out of memory is a line, too. Each line has the median step time with its spread, images a second, the peak of the
allocator without and with the search for algorithms (first step), the card, the versions and the command. XLA is off:
it has a search of its own, which does not read this limit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

VARIABLE = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB"


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ResNet50", help="a class of keras.applications")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=224, help="pixels of an image's side")
    parser.add_argument("--policy", default="mixed_float16", choices=("float32", "mixed_float16"))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limits", default="64,128,256,512,1024,2048,4096,8192", help="MiB")
    parser.add_argument("--one", action="store_true", help="measure in this process, with the limit of the environment")
    return parser.parse_args(words)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains a few steps in this process; the figures."""
    import numpy as np
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise SystemExit("no GPU: the limit is one of cuDNN's")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    keras = tf.keras
    keras.mixed_precision.set_global_policy(arguments.policy)
    model = getattr(keras.applications, arguments.model)(weights=None)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy", jit_compile=False)
    x = np.random.default_rng(0).random((arguments.batch, arguments.size, arguments.size, 3), dtype="float32")
    y = np.zeros(arguments.batch, "int64")
    model.train_on_batch(x, y)
    first_peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    tf.config.experimental.reset_memory_stats("GPU:0")
    seconds = []
    for _ in range(arguments.steps):
        started = time.perf_counter()
        float(np.ravel(model.train_on_batch(x, y))[0])  # waits for the device
        seconds.append(time.perf_counter() - started)
    quarter, median, three_quarters = (float(each) for each in np.percentile(seconds, [25, 50, 75]))
    details = tf.config.experimental.get_device_details(gpus[0])
    return {
        "step_seconds": median,
        "step_seconds_quartiles": [quarter, three_quarters],
        "images_per_second": arguments.batch / median,
        "first_step_peak_bytes": int(first_peak),
        "peak_bytes": int(tf.config.experimental.get_memory_info("GPU:0")["peak"]),
        "gpu": details.get("device_name"),
        "compute_capability": details.get("compute_capability"),
        "tensorflow": tf.__version__,
        "cudnn": tf.sysconfig.get_build_info().get("cudnn_version"),
    }


def in_a_process(limit_mb: int, words: list[str], number: int) -> dict[str, Any]:
    """One limit, measured in a process of its own; what it printed last where it failed."""
    environ = {**os.environ, VARIABLE: str(limit_mb), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run([sys.executable, __file__, *words, "--one"], env=environ, capture_output=True, text=True)
    line: dict[str, Any] = {"limit_mb": limit_mb, "round": number, "command": ["measure.py", *words]}
    if done.returncode == 0:
        return {**line, "fits": True, **json.loads(done.stdout.splitlines()[-1])}
    said = [text for text in done.stderr.splitlines() if text.strip()]
    out_of_memory = any("OOM" in text or "out of memory" in text.lower() for text in said)
    return {**line, "fits": False, "out_of_memory": out_of_memory, "error": said[-1] if said else str(done.returncode)}


def main() -> None:
    """Measures all limits."""
    words = sys.argv[1:]
    arguments = parsed(words)
    if arguments.one:
        print(json.dumps(measure(arguments)))
        return
    limits = [int(limit) for limit in arguments.limits.split(",")]
    for number in range(arguments.rounds):
        for limit_mb in random.Random(number).sample(limits, len(limits)):
            print(json.dumps(in_a_process(limit_mb, words, number)), flush=True)


if __name__ == "__main__":
    main()
