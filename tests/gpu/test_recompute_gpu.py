"""Activations computed again on a GPU: less memory, the same training. Skips itself, and says so, where there is none.

``python -m tests.gpu.test_recompute_gpu`` runs it without pytest and prints what was seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.gpu.test_knobs_gpu import has_gpu

try:
    import pytest

    pytestmark = pytest.mark.skipif(not has_gpu(), reason="no GPU here: nvidia-smi names none")
except ImportError:  # run as a program on a host without pytest
    pass

# One process a run, since the allocator's peak is that of the process.
SCRIPT = """
import json, sys
import numpy as np, tensorflow as tf
from tests.stack import STACK, keras
from tfvolta.callbacks import GradientCheckpointing
policy, jit, again = sys.argv[1:]
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
keras.mixed_precision.set_global_policy(policy)
keras.utils.set_random_seed(1)
layers = keras.layers
tensor = inputs = keras.Input((64, 256))
for _ in range(12):
    attended = layers.MultiHeadAttention(8, 32)(query=tensor, value=tensor, key=tensor)
    tensor = layers.LayerNormalization()(layers.Add()([tensor, attended]))
    hidden = layers.Dense(256)(layers.Dense(1024, activation="relu")(tensor))
    tensor = layers.LayerNormalization()(layers.Add()([tensor, hidden]))
model = keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling1D()(tensor)))
model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=jit == "jit")
data = np.random.RandomState(0).rand(256, 64, 256).astype("float32")
callbacks = [GradientCheckpointing(every=4)] if again == "again" else []
history = model.fit(data, data[:, 0, :1], 64, 2, verbose=0, shuffle=False, callbacks=callbacks)
info = tf.config.experimental.get_memory_info("GPU:0")
found = {"stack": STACK, "loss": history.history["loss"], "above": info["peak"] - info["current"]}
if callbacks:
    outcome = callbacks[0].session.endings["recompute"].outcome
    found["outcome"] = [outcome.status.value, outcome.message]
print("RESULT " + json.dumps(found))
"""


def run(*arguments: str) -> dict[str, Any]:
    """What one process saw."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[-1][len("RESULT ") :])
    return found


def compare(policy: str, jit: str) -> dict[str, Any]:
    """Both runs, and the share of memory that is left."""
    plain, again = run(policy, jit, "plain"), run(policy, jit, "again")
    return {"plain": plain, "again": again, "ratio": again["above"] / plain["above"]}


def check(found: dict[str, Any], tolerance: float) -> None:
    """Half of the memory, and the same losses."""
    assert found["again"]["outcome"][0] == "APPLIED", found
    assert found["ratio"] < 0.5, found
    for one, two in zip(found["plain"]["loss"], found["again"]["loss"]):
        assert abs(one - two) <= tolerance * abs(one), found


def test_half_of_the_memory_and_the_same_losses_without_xla() -> None:
    check(compare("mixed_float16", "plain"), 1e-2)


def test_half_of_the_memory_and_the_same_losses_with_xla() -> None:
    check(compare("mixed_float16", "jit"), 1e-2)


def test_float32() -> None:
    check(compare("float32", "plain"), 1e-3)


if __name__ == "__main__":
    for each_policy in ("mixed_float16", "float32"):
        for each_jit in ("plain", "jit"):
            print(each_policy, each_jit, json.dumps(compare(each_policy, each_jit)), flush=True)
