"""Trying a step with XLA on a GPU. Skips itself, and says so, where there is none.

``python -m tests.gpu.test_xla_trial_gpu`` runs it without pytest and prints what was seen.
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

SCRIPT = """
import json, sys, time
from tests.stack import STACK, keras
from tests.tensorflow.xla_models import Text, compiled, dataset, plain, sequential
from tfvolta.callbacks import MixedPrecision, XlaJit
seen = {}
for name, layer in (("good", None), ("odd", Text(name="odd"))):
    for half in (False, True):
        model = compiled(plain() if layer is None else sequential(layer))
        jit = XlaJit("auto")
        model.fit(dataset(), verbose=0, callbacks=[*([MixedPrecision()] if half else []), jit])
        outcome = jit.session.endings["jit"].outcome
        seen[f"{name} {'float16' if half else 'float32'}"] = outcome.to_json()
if "--large" in sys.argv:
    import numpy as np, tensorflow as tf
    model = keras.applications.ResNet50(weights=None)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    jit = XlaJit("auto")
    data = tf.data.Dataset.from_tensor_slices((np.ones((8, 224, 224, 3), "f"), np.ones(8, "i"))).batch(8)
    start = time.perf_counter()
    model.fit(data, verbose=0, callbacks=[jit])
    seen["ResNet-50"] = {**jit.session.endings["jit"].outcome.to_json(), "fit_seconds": time.perf_counter() - start}
print(json.dumps(seen))
"""


def seen(*options: str) -> dict[str, Any]:
    """How jit ended for models that XLA compiles and for one that it cannot."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_good_step_is_compiled_and_an_odd_one_is_not() -> None:
    for name, outcome in seen().items():
        assert outcome["status"] == "APPLIED", (name, outcome)
        assert outcome["observed"]["trial"] == "lowered"
        assert outcome["observed"]["compiled"] is name.startswith("good"), (name, outcome)
        assert ("AsString" in outcome["message"]) is name.startswith("odd")


if __name__ == "__main__":
    for name, outcome in seen(*sys.argv[1:]).items():
        print(name, outcome)
