"""Keras 3's question whether an embedding's gradients are finite: what it misses, and where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf

if not KERAS3:
    pytest.skip("the loss-scale wrapper of Keras 3", allow_module_level=True)

from tensorflow.python.framework import kernels

from tfvolta.bridge import bridge_for_stack, keras3_finite_check

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)
TOKENS = np.array([[1, 2, 1], [3, 1, 0]])


def model() -> Any:
    keras.utils.set_random_seed(1)
    made = keras.Sequential(
        [keras.Input((3,), dtype="int32"), layers.Embedding(5, 4), layers.Flatten(), layers.Dense(1)]
    )
    made.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0), "mse")
    return made


def slices(*rows: float, indices: Any = (1, 1)) -> Any:
    return tf.IndexedSlices(tf.constant([[row] for row in rows]), tf.constant(indices), tf.constant([3, 1]))


def test_keras_overlooks_an_infinity_in_a_row_that_occurs_twice() -> None:
    """The fault itself; when this fails, Keras has mended it."""
    assert bool(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()).check_finite([slices(np.inf, 1.0)]))


@pytest.mark.parametrize(
    ("gradients", "finite"),
    [
        ([slices(np.inf, 1.0)], False),
        ([slices(1.0, np.nan)], False),
        ([slices(1.0, 2.0), None, tf.constant([3.0])], True),
        ([slices(1.0, 2.0), tf.constant([np.inf])], False),
        ([], True),
    ],
)
def test_every_value_counts(gradients: list[Any], finite: bool) -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    assert keras3_finite_check.install(optimizer) and not keras3_finite_check.install(optimizer)
    assert bool(optimizer.check_finite(gradients)) is finite


@pytest.mark.parametrize("mended", [False, True])
def test_an_overflow_in_one_of_two_equal_tokens_skips_the_step(mended: bool) -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=2.0)
    if mended:
        keras3_finite_check.install(optimizer)
    table = keras.Variable(np.zeros((3, 1), "float32"))
    optimizer.build([table])
    optimizer.apply([slices(np.inf, 2.0)], [table])
    assert table.numpy().tolist() == [[0.0], [0.0 if mended else -np.inf], [0.0]]
    assert float(optimizer.dynamic_scale.numpy()) == (1.0 if mended else 2.0)


def test_the_traced_step_asks_without_the_operation_that_no_gpu_has() -> None:
    gpu = [
        each
        for each in kernels.get_registered_kernels_for_op("TensorScatterUpdate").kernel
        if each.device_type == "GPU"
    ]
    served = {tf.as_dtype(t) for each in gpu for c in each.constraint for t in c.allowed_values.list.type}
    if gpu:  # a build of TensorFlow with CUDA
        assert tf.float32 in served and tf.bool not in served
    counts = []
    for mended in (False, True):
        made = model()
        if mended:
            BRIDGE.mend(made)
        made.fit(TOKENS, np.ones((2, 1)), verbose=0)
        counts.append(BRIDGE.train_graph(made).count("TensorScatterUpdate"))
    assert counts[0] > 0 and counts[1] == 0


def test_a_check_of_one_s_own_stays() -> None:
    class Own(keras.optimizers.LossScaleOptimizer):  # type: ignore[misc, name-defined]
        def check_finite(self, grads: Any) -> Any:
            return tf.constant(True)

    assert not keras3_finite_check.install(Own(keras.optimizers.SGD()))
