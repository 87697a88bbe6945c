"""One training of measure.py, in a process of its own: a model under a limit of cuDNN's scratch memory, without XLA.

worker.py MODEL BATCH PIXELS POLICY MIB|default SECONDS GIB
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
NAME, BATCH, PIXELS, POLICY, LIMIT, SECONDS, GIB = sys.argv[1:]
os.environ.pop("TF_CUDNN_WORKSPACE_LIMIT_IN_MB", None)
if LIMIT != "default":
    os.environ["TF_CUDNN_WORKSPACE_LIMIT_IN_MB"] = LIMIT  # read once a process, at the first convolution

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks.turn_callback import ENDLESS, TurnCallback, keras_of, limit_memory, own_baton  # noqa: E402


def data(batch: int, pixels: int) -> Any:
    """The same images again and again."""
    x = np.random.default_rng(0).random((batch, pixels, pixels, 3), dtype="float32")
    return tf.data.Dataset.from_tensors((x, np.zeros(batch, "int64"))).cache().repeat().prefetch(2)


def main() -> None:
    """Trains until the driver says that it is enough."""
    baton = own_baton()
    keras = keras_of(tf)
    limit_memory(tf, float(GIB) or None)
    keras.mixed_precision.set_global_policy(POLICY)
    keras.utils.set_random_seed(0)
    shape = (int(PIXELS), int(PIXELS), 3)
    model = getattr(keras.applications, NAME)(weights=None, input_shape=shape, classes=1000)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", jit_compile=False)
    cudnn = tf.sysconfig.get_build_info().get("cudnn_version")
    turns = TurnCallback(baton, int(BATCH), seconds=float(SECONDS), facts=lambda: {"cudnn": cudnn})
    images = data(int(BATCH), int(PIXELS))
    baton.wait_for_warm_up()
    model.fit(images, callbacks=[turns], **ENDLESS)


if __name__ == "__main__":
    main()
