"""The Keras that this test process runs on; the stack is chosen as a user chooses it, by the environment."""

from __future__ import annotations

import os

import tensorflow as tf

if tf.__version__.startswith("2.15"):
    import keras

    STACK = "keras2"
elif os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
    import tf_keras as keras

    STACK = "tf_keras"
else:
    import keras

    STACK = "keras3"

KERAS3 = STACK == "keras3"

__all__ = ["KERAS3", "STACK", "keras", "tf"]
