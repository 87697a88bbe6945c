#!/usr/bin/env python3
"""ResNet-50 and BERT-large on one and two GPUs through tfvolta: rates, scaling, and a sweep of pack sizes.

    python3 benchmarks/two_gpus/measure.py --out results.jsonl            # on a host with two GPUs
    python3 benchmarks/two_gpus/measure.py --quick                        # tiny models on CPUs, to try the script
    python3 benchmarks/two_gpus/measure.py --list                         # names of the runs, in their order
    python3 benchmarks/two_gpus/measure.py --only 'resnet50/keras3/.*'    # some of them

Each run is a process of its own (or two, for two workers) with a time limit; its result is printed and appended to the
file at once, as one JSON line. A run whose result is in the file already is left out, so that a measurement can be
continued. Data are on the device: images lie in a variable of each replica, and only their numbers come from the host.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.peers import keras_models  # noqa: E402

PACKS_MB = (8, 25, 64, 128)


def runs(gpus: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Every run, the ones that matter most first."""
    for model in ("resnet50", "bert_large"):
        for stack in ("keras3", "tf_keras"):
            for count in (1, gpus):
                yield {"kind": "fit", "model": model, "stack": stack, "gpus": count}
    packs = PACKS_MB[:1] if quick else PACKS_MB
    for model in ("resnet50", "bert_large"):
        for pack in (None, *packs):
            yield {"kind": "all_reduce", "model": model, "stack": "keras3", "gpus": gpus, "pack_mb": pack}
        for pack in packs:
            yield {"kind": "fit", "model": model, "stack": "keras3", "gpus": gpus, "pack_mb": pack}
    for model in ("resnet50", "bert_large"):
        for stack in ("keras3", "tf_keras"):
            yield {"kind": "fit", "model": model, "stack": stack, "gpus": gpus, "workers": gpus, "jit": "auto"}
    if not quick:  # what a compiled step is worth with several replicas
        yield {"kind": "fit", "model": "resnet50", "stack": "keras3", "gpus": gpus, "jit": "off"}
        yield {"kind": "fit", "model": "bert_large", "stack": "tf_keras", "gpus": gpus, "pack_mb": PACKS_MB[1]}


def name_of(run: dict[str, Any]) -> str:
    """A name such as ``resnet50/keras3/fit/2gpus/pack25``."""
    parts = [run["model"], run["stack"], run["kind"], f"{run['gpus']}gpus"]
    parts += [f"pack{run['pack_mb']}"] if run.get("pack_mb") else []
    parts += ["workers"] if run.get("workers") else []
    parts += [f"jit_{run['jit']}"] if run.get("jit") not in (None, "auto") else []
    return "/".join(parts)


# ---------------------------------------------------------------------------------------------------------- the parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="file that results are appended to")
    parser.add_argument("--quick", action="store_true", help="tiny models on logical CPU devices")
    parser.add_argument("--list", action="store_true", help="print the names of the runs")
    parser.add_argument("--only", default="", help="pattern that the name of a run must match from its start")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40, help="steps an epoch")
    parser.add_argument("--epochs", type=int, default=4, help="epochs, of which the first is warm-up")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds for one run")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further run is started")
    parser.add_argument("--xla-flags", default="", help="added to XLA_FLAGS of every run, and noted in its result")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(json.loads(arguments.worker))
    chosen = [run for run in runs(arguments.gpus, arguments.quick) if re.match(arguments.only, name_of(run))]
    if arguments.list:
        print("\n".join(name_of(run) for run in chosen))
        return 0
    return measure(arguments, chosen)


def measure(arguments: argparse.Namespace, chosen: list[dict[str, Any]]) -> int:
    """Makes the runs one after the other; the number of those that failed."""
    out, started, failed, rates = arguments.out, time.monotonic(), 0, {}
    known = {}
    if out is not None and out.exists():
        known = {line["name"]: line for line in map(json.loads, out.read_text().splitlines()) if "error" not in line}
    for run in chosen:
        run = {**run, "steps": arguments.steps, "epochs": arguments.epochs, "xla_flags": arguments.xla_flags}
        run["quick"], name = arguments.quick, name_of(run)
        suffix = f"/{arguments.xla_flags}" if arguments.xla_flags else ""
        result = known.get(name + suffix)
        if result is None:
            if time.monotonic() - started > arguments.budget:
                print(json.dumps({"name": name + suffix, "left_out": "no time left"}), flush=True)
                continue
            result = {"name": name + suffix, **execute(run, arguments.limit)}
            rate = result.get("examples_per_second")
            alone = rates.get((run["model"], run["stack"]))
            if rate and alone and run["gpus"] > 1:
                result["scaling"] = round(rate / (alone * run["gpus"]), 4)
            print(json.dumps(result), flush=True)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
        failed += "error" in result
        if run["kind"] == "fit" and run["gpus"] == 1 and result.get("examples_per_second"):
            rates[run["model"], run["stack"]] = result["examples_per_second"]
    return failed


def execute(run: dict[str, Any], limit: float) -> dict[str, Any]:
    """One run in processes of its own, ended when the limit has passed; its result, or what went wrong."""
    count = run.get("workers") or 1
    folder = pathlib.Path(tempfile.mkdtemp(prefix="two_gpus_"))
    processes, began = [], time.monotonic()
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    for index in range(count):
        command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--worker", json.dumps(run)]
        environ = environment(run, index if count > 1 else None, addresses)
        log = (folder / f"{index}.log").open("w", encoding="utf-8")
        processes.append(
            subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        )
    codes = [wait(process, began + limit) for process in processes]
    text = (folder / "0.log").read_text(encoding="utf-8", errors="replace")
    lines = [line[7:] for line in text.splitlines() if line.startswith("RESULT ")]
    seconds = round(time.monotonic() - began, 1)
    if lines and not any(codes):
        return {**json.loads(lines[-1]), "run": run, "wall_seconds": seconds}
    problem = f"ended after {limit:g} s" if None in codes else f"exit codes {codes}"
    tails = [(folder / f"{index}.log").read_text(errors="replace")[-1500:] for index in range(count)]
    return {"run": run, "error": problem, "wall_seconds": seconds, "tail": tails}


def wait(process: subprocess.Popen[bytes], until: float) -> Optional[int]:
    """Exit code of a process; None where it had to be killed, with all that it started."""
    try:
        return process.wait(timeout=max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def environment(run: dict[str, Any], worker: Optional[int], addresses: list[str]) -> dict[str, str]:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])
    environ.pop("TF_USE_LEGACY_KERAS", None)
    if run["stack"] == "tf_keras":
        environ["TF_USE_LEGACY_KERAS"] = "1"
    if run["xla_flags"]:
        environ["XLA_FLAGS"] = f"{environ.get('XLA_FLAGS', '')} {run['xla_flags']}".strip()
    if worker is not None:
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": worker}}
        environ.update(TF_CONFIG=json.dumps(task), CUDA_VISIBLE_DEVICES="" if run["quick"] else str(worker))
    return environ


# ---------------------------------------------------------------------------------------------------- inside of a run


def work(run: dict[str, Any]) -> int:
    """Trains, or reduces, and prints one line."""
    import tfvolta

    config = config_of(run)
    strategy = tfvolta.build_strategy(config)
    import tensorflow as tf

    result = all_reduce(run, strategy, tf) if run["kind"] == "all_reduce" else fit(run, config, strategy, tf)
    print("RESULT " + json.dumps(result), flush=True)
    return 0


def config_of(run: dict[str, Any]) -> Any:
    import tfvolta

    count, quick, workers = run["gpus"], run["quick"], run.get("workers")
    sections: dict[str, Any] = {
        "strategy": {"kind": "multi_worker_mirrored" if workers else "mirrored"},
        "xla": {"jit": "off" if quick else run.get("jit") or "auto"},
        "mixed_precision": {"policy": "mixed_float16"},
        "fit": {"steps_per_execution": 2 if quick else 10},
        "monitor": {"memory": False},
        "run": {"directory": "runs", "strict": False},
    }
    if quick and not workers:
        sections["strategy"].update(logical_cpus=count, devices=[f"CPU:{index}" for index in range(count)])
    elif not workers:
        sections["devices"] = {"visible": list(range(count))}
    if run.get("pack_mb"):
        sections["communication"] = {"pack_mb": 1 if quick else run["pack_mb"]}
    return tfvolta.load_config(**sections)


def fit(run: dict[str, Any], config: Any, strategy: Any, tf: Any) -> dict[str, Any]:
    """Trains for some epochs, of which the first is warm-up."""
    import numpy as np

    import tfvolta
    from benchmarks.epoch_clock import make_clock
    from tfvolta.session import session_for

    keras = tf.keras
    share = {"resnet50": 256, "bert_large": 64}[run["model"]] if not run["quick"] else 4
    batch = share * run["gpus"]
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = make_model(run, keras, share)
        optimizer = (
            keras.optimizers.SGD(0.1, momentum=0.9) if run["model"] == "resnet50" else keras.optimizers.Adam(1e-4)
        )
        model.compile(optimizer, "sparse_categorical_crossentropy")
    generator = np.random.default_rng(0)
    labels = generator.integers(0, model.output_shape[-1], batch).astype("int32")
    if run["model"] == "resnet50":
        inputs = np.arange(batch, dtype="int32") % share
    else:
        inputs = generator.integers(0, 1000, (batch, 16 if run["quick"] else 128)).astype("int32")
    data = tf.data.Dataset.from_tensors((inputs, labels)).repeat()
    steps = 4 if run["quick"] else run["steps"]
    clock = make_clock(keras)
    callbacks = [*tfvolta.build_callbacks(config, model), clock]
    history = model.fit(data, steps_per_epoch=steps, epochs=run["epochs"], verbose=0, callbacks=callbacks)
    measured = clock.seconds[1:]
    rates = [batch * steps / seconds for seconds in measured]
    memory = {}
    for index in range(len(tf.config.list_physical_devices("GPU"))):
        memory[f"GPU:{index}"] = round(tf.config.experimental.get_memory_info(f"GPU:{index}")["peak"] / 2**30, 2)
    outcomes = session_for(config).endings
    return {
        "examples_per_second": round(statistics.median(rates), 1),
        "examples_per_second_by_epoch": [round(rate, 1) for rate in rates],
        "step_ms": round(1000 * statistics.median(measured) / steps, 3),
        "first_epoch_seconds": round(clock.seconds[0], 1),
        "global_batch": batch,
        "replicas": int(strategy.num_replicas_in_sync),
        "peak_gib": memory,
        "loss": [round(float(loss), 4) for loss in history.history["loss"]],
        "parameters": int(model.count_params()),
        "outcomes": {
            key: outcomes[key].outcome.to_json() for key in ("strategy", "communication", "jit") if key in outcomes
        },
        "skipped_steps": session_skips(model),
        "tensorflow": tf.__version__,
        "keras": importlib.metadata.version("tf_keras" if run["stack"] == "tf_keras" else "keras"),
    }


def session_skips(model: Any) -> Any:
    from tfvolta.bridge import bridge_for

    counts = bridge_for(model).step_counts(model)
    return None if counts is None else counts.skipped


def make_model(run: dict[str, Any], keras: Any, share: int) -> Any:
    if run["model"] == "bert_large":
        sizes = (2, 32, 2, 16) if run["quick"] else (24, 1024, 16, 128)
        return keras_models.encoder(keras, sizes, head={"activation": "softmax", "dtype": "float32"})
    size, classes = (32, 10) if run["quick"] else (224, 1000)
    numbers = keras.Input((), dtype="int32")
    images = on_device(keras)((share, size, size, 3))(numbers)
    if run["quick"]:
        parts = [keras.layers.Conv2D(8, 3), keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D()]
        outputs = keras.Sequential([keras.Input((size, size, 3)), *parts, keras.layers.Dense(classes, "softmax")])(
            images
        )
    else:
        outputs = keras.applications.ResNet50(weights=None, input_shape=(size, size, 3), classes=classes)(images)
    return keras.Model(numbers, outputs)


def on_device(keras: Any) -> Any:
    """A layer that holds images in a variable of each replica and hands out those whose numbers it is given."""
    import tensorflow as tf

    class OnDevice(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__(dtype="float32")
            self.images_shape = shape

        def build(self, shape: Any) -> None:
            initializer = keras.initializers.RandomNormal(seed=0)
            self.images = self.add_weight(
                name="images", shape=self.images_shape, initializer=initializer, trainable=False
            )

        def call(self, numbers: Any) -> Any:
            return tf.gather(tf.cast(tf.convert_to_tensor(self.images), tf.float16), numbers)

    return OnDevice


def all_reduce(run: dict[str, Any], strategy: Any, tf: Any) -> dict[str, Any]:
    """Reduces tensors of the shapes of the model's gradients, and nothing else, as the compiled step does."""
    keras = tf.keras
    keras.config.set_dtype_policy("float32") if hasattr(keras, "config") else None
    with tf.device("CPU:0"):
        shapes = [tuple(weight.shape) for weight in make_model(run, keras, 2).trainable_weights]
    with strategy.scope():
        buffers = [tf.Variable(tf.zeros(shape), trainable=False) for shape in shapes]

    def replica() -> None:
        values = [tf.convert_to_tensor(buffer) + 1.0 for buffer in buffers]
        for buffer, value in zip(buffers, tf.distribute.get_replica_context().all_reduce("sum", values)):
            buffer.assign(value * 0.5)

    inner = tf.function(replica, autograph=False, jit_compile=not run["quick"])
    step = tf.function(lambda: strategy.run(lambda: inner()), autograph=False)
    if run["quick"]:
        step = tf.function(lambda: strategy.run(replica), autograph=False)
    times = []
    for _ in range(3 if run["quick"] else 33):
        began = time.perf_counter()
        step()
        last = strategy.experimental_local_results(buffers[-1])[-1].numpy()  # waits for the device
        times.append(1000 * (time.perf_counter() - began))
    size = 4 * sum(int(tf.reduce_prod(shape)) for shape in shapes)
    median = statistics.median(times[3:] or times)
    return {
        "all_reduce_ms": round(median, 3),
        "fastest_ms": round(min(times[3:] or times), 3),
        "bytes": size,
        "tensors": len(shapes),
        "gigabytes_per_second": round(size / median / 1e6, 1),
        "value": float(last.ravel()[0]),
        "replicas": int(strategy.num_replicas_in_sync),
        "tensorflow": tf.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())
