"""Activations computed again on a GPU: less memory, the same training. Skips itself, and says so, where there is none.

``python -m tests.gpu.test_recompute_gpu`` runs it without pytest, all processes side by side, and prints what was seen;
``--cpu`` tries the program on tiny sizes without a GPU, where no bytes are counted.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
from typing import Any, Optional

from tests.gpu.test_knobs_gpu import has_gpu

try:
    import pytest

    pytestmark = pytest.mark.skipif(not has_gpu(), reason="no GPU here: nvidia-smi names none")
except ImportError:  # run as a program on a host without pytest
    pass

# One process a run, since the allocator's peak is that of the process. The peak of the second epoch counts: the first
# step holds what the search for kernels takes.
SCRIPT = """
import json, sys
import numpy as np, tensorflow as tf
from tests.stack import STACK, keras
from tfvolta.callbacks import GradientCheckpointing
kind, policy, jit, way, width, blocks = *sys.argv[1:5], int(sys.argv[5]), int(sys.argv[6])
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
keras.mixed_precision.set_global_policy(policy)
keras.utils.set_random_seed(1)
layers = keras.layers
tokens, batch = width // 4, 64 if gpus else 4
if kind == "attention":
    tensor = inputs = keras.Input((tokens, width))
    for _ in range(blocks):
        attended = layers.MultiHeadAttention(8, width // 8)(query=tensor, value=tensor, key=tensor)
        tensor = layers.LayerNormalization()(layers.Add()([tensor, layers.Dropout(0.1)(attended)]))
        hidden = layers.Dense(width)(layers.Dense(4 * width, activation="relu")(tensor))
        tensor = layers.LayerNormalization()(layers.Add()([tensor, hidden]))
    pooled = layers.GlobalAveragePooling1D()(tensor)
else:
    inputs = keras.Input((tokens, tokens, 16))
    tensor = layers.Conv2D(width // 4, 3, padding="same")(inputs)
    for _ in range(blocks):
        inner = layers.BatchNormalization()(layers.Conv2D(width // 4, 3, padding="same", use_bias=False)(tensor))
        inner = layers.Conv2D(width // 4, 3, padding="same", use_bias=False)(layers.ReLU()(inner))
        tensor = layers.ReLU()(layers.Add()([tensor, layers.BatchNormalization()(inner)]))
    pooled = layers.GlobalAveragePooling2D()(tensor)
model = keras.Model(inputs, layers.Dense(1, dtype="float32")(pooled))
model.compile(keras.optimizers.SGD(1e-4), "mse", jit_compile=jit == "jit")
data = np.random.RandomState(0).rand(4 * batch, *inputs.shape[1:]).astype("float32")
goal = data.reshape(len(data), -1)[:, :1]

class Second(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and gpus:
            tf.config.experimental.reset_memory_stats("GPU:0")

    def on_epoch_end(self, epoch, logs=None):
        self.memory = tf.config.experimental.get_memory_info("GPU:0") if gpus else {"peak": 0, "current": 0}

second = Second()
again = {"plain": None, "every": {"every": 4}}[way]
callbacks = [second] if again is None else [second, GradientCheckpointing(**again)]
history = model.fit(data, goal, batch, 2, verbose=0, shuffle=False, callbacks=callbacks)
found = {"stack": STACK, "loss": history.history["loss"], "above": second.memory["peak"] - second.memory["current"]}
if again is not None:
    outcome = callbacks[-1].session.endings["recompute"].outcome
    found["outcome"] = [outcome.status.value, outcome.message]
print("RESULT " + json.dumps(found))
"""
SIZE = {"attention": ("256", "8"), "convolution": ("256", "12")}
TINY = {"attention": ("16", "2"), "convolution": ("16", "2")}
LIMIT_SECONDS = 95 if has_gpu() else 400
# Kind of model, policy, XLA or not, how it is cut, and how far the losses may be apart.
CASES = {
    "mixed_float16": ("attention", "mixed_float16", "plain", "every", 1e-2),
    "mixed_float16, XLA": ("attention", "mixed_float16", "jit", "every", 1e-2),
    "float32": ("attention", "float32", "plain", "every", 1e-3),
    "float32, XLA": ("attention", "float32", "jit", "every", 1e-3),
    "convolutions, mixed_float16": ("convolution", "mixed_float16", "plain", "every", 2e-2),
    "convolutions, mixed_float16, XLA": ("convolution", "mixed_float16", "jit", "every", 2e-2),
}


def run(kind: str, policy: str, jit: str, way: str, size: tuple[str, str]) -> dict[str, Any]:
    """What one process saw."""
    command = [sys.executable, "-c", SCRIPT, kind, policy, jit, way, *size]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False, env=environ)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{kind} {policy} {jit} {way}: not done within {LIMIT_SECONDS} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[-1][len("RESULT ") :])
    return found


def compare(name: str, sizes: Optional[dict[str, tuple[str, str]]] = None) -> dict[str, Any]:
    """Both runs, side by side, and the share of memory that is left; None where no bytes are counted."""
    kind, policy, jit, way, _ = CASES[name]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ways = [pool.submit(run, kind, policy, jit, each, (sizes or SIZE)[kind]) for each in ("plain", way)]
        plain, again = (each.result() for each in ways)
    ratio = again["above"] / plain["above"] if plain["above"] else None
    return {"plain": plain, "again": again, "ratio": ratio}


def check(name: str, found: dict[str, Any]) -> None:
    """Half of the memory, and the same losses."""
    assert found["again"]["outcome"][0] == "APPLIED", found
    assert found["ratio"] is None or found["ratio"] < 0.5, found
    for one, two in zip(found["plain"]["loss"], found["again"]["loss"]):
        assert abs(one - two) <= CASES[name][-1] * abs(one), found


def test_half_of_the_memory_and_the_same_losses() -> None:
    for name in ("mixed_float16", "float32"):
        check(name, compare(name))


def test_half_of_the_memory_and_the_same_losses_with_xla() -> None:
    for name in ("mixed_float16, XLA", "float32, XLA"):
        check(name, compare(name))


def test_convolutions_with_batch_norm() -> None:
    for name in ("convolutions, mixed_float16", "convolutions, mixed_float16, XLA"):
        check(name, compare(name))


def main() -> int:
    """All cases side by side; 1 where one is not as it should be."""
    if not has_gpu() and "--cpu" not in sys.argv:
        print("skipped: no GPU here, nvidia-smi names none")
        return 0
    sizes = TINY if "--cpu" in sys.argv else SIZE
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(CASES) if sizes is SIZE else 1) as pool:
        futures = {name: pool.submit(compare, name, sizes) for name in CASES}
        for name, future in futures.items():
            try:
                found = future.result()
                check(name, found)
                verdict = "passed"
            except AssertionError as error:
                found, verdict, failed = {}, f"FAILED {error}", 1
            print(json.dumps({"case": name, "verdict": verdict[:1500], **found}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
