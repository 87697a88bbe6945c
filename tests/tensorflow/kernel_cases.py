"""Layers that run a faster kernel beside the same ones as Keras runs them; for a CPU and for a GPU."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tests.stack import STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.kernel_records import BATCH_NORM, RECURRENT

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)
RANDOM = np.random.default_rng(4)
BATCH, TIME, FEATURES, UNITS = 5, 4, 3, 4
X = RANDOM.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
FULL = np.ones((BATCH, TIME), bool)
RIGHT = np.arange(TIME)[None, :] < np.array([4, 2, 1, 3, 4])[:, None]
MASKS = {
    "none": None,
    "full": FULL,
    "right": RIGHT,
    "left": RIGHT[:, ::-1],
    "hole": np.where(np.arange(TIME) == 1, False, FULL),
    "empty row": np.where(np.arange(BATCH)[:, None] == 2, False, RIGHT),
}
ON_CUDNN = ("none", "full", "right")
KINDS = {"lstm": layers.LSTM, "gru": layers.GRU}


def pair(shape: tuple[int, ...], policy: str = "float32", **arguments: Any) -> tuple[Any, Any]:
    """A model of one layer with weights of no special value as Keras runs it, and the same one fused."""
    models = []
    for _ in range(2):
        inputs = keras.Input(shape[1:])
        norm = layers.BatchNormalization(dtype=keras.DTypePolicy(policy), name="norm", **arguments)
        models.append(keras.Model(inputs, norm(inputs)))
    numbers = np.random.default_rng(9)
    weights = [numbers.uniform(0.5, 1.5, weight.shape) for weight in models[0].get_weights()]
    for model in models:
        model.set_weights(weights)
    change = BRIDGE.install_kernel(models[1], BATCH_NORM)
    assert change.served == ("norm",) and not change.left
    return models[0], models[1]


def norm_passes(model: Any, x: Any, seed: Any, training: bool) -> dict[str, Any]:
    """Output, gradients of the inputs and of the weights, and the moving statistics after the call."""

    @tf.function
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x, training=training)
            loss = tf.reduce_sum(tf.cast(y, tf.float32) * seed)
        weights = [weight.value for weight in model.trainable_variables]
        return [y, *tape.gradient(loss, [x, *weights])]

    y, *gradients = run(tf.constant(x))
    operations = run.get_concrete_function(tf.constant(x)).graph.get_operations()
    return {
        "output": y.numpy(),
        "gradients": [gradient.numpy() for gradient in gradients],
        "moved": [weight.numpy() for weight in model.layers[-1].non_trainable_variables],
        "fused": [operation.get_attr("T").name for operation in operations if operation.type == "FusedBatchNormV3"],
    }


def far(found: Any, wanted: Any) -> float:
    """Largest difference, relative to the largest value."""
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    return float(np.max(np.abs(found - wanted)) / max(float(np.max(np.abs(wanted))), 1e-3))


def layer(kind: str, policy: str = "float32", **arguments: Any) -> Any:
    """A built layer with weights of no special value; biases are not zero."""
    keras.utils.set_random_seed(2)
    made = KINDS[kind](UNITS, dtype=keras.DTypePolicy(policy), name="loop", **arguments)
    made.build((BATCH, TIME, FEATURES))
    numbers = np.random.default_rng(8)
    made.set_weights([numbers.normal(0.0, 0.6, weight.shape) for weight in made.get_weights()])
    return made


def served(made: Any) -> Any:
    """The layer, or the layers in it, put on cuDNN."""
    holder = keras.Sequential([made])
    change = BRIDGE.install_kernel(holder, RECURRENT)
    assert change.served and not [each for each in change.left if each.class_name != "Bidirectional"]
    return made


def recurrent_passes(
    made: Any, mask: Optional[Any], training: bool = True, states: Any = None, graph: bool = False
) -> list[np.ndarray[Any, Any]]:
    """Outputs and states, then gradients of the inputs and the weights, with masked outputs weighing nothing."""
    weigh = np.random.default_rng(6).normal(size=(BATCH, TIME, 2 * UNITS)).astype("float32")

    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            given = {} if states is None else {"initial_state": [tf.constant(state) for state in states]}
            results = made(x, mask=None if mask is None else tf.constant(mask), training=training, **given)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            loss = 0.0
            for result in results:
                weight = weigh[:, :, : result.shape[-1]] if len(result.shape) == 3 else weigh[:, 0, : result.shape[-1]]
                loss += tf.reduce_sum(tf.cast(result, tf.float32) * weight)
        weights = [weight.value for weight in made.trainable_variables]
        return results, tape.gradient(loss, [x, *weights])

    results, gradients = (tf.function(run) if graph else run)(tf.constant(X))
    return [each.numpy() for each in (*results, *gradients)]


def equal(found: list[Any], wanted: list[Any], tolerance: float) -> None:
    assert len(found) == len(wanted)
    for mine, keras_own in zip(found, wanted):
        assert mine.dtype == keras_own.dtype and mine.shape == keras_own.shape
        mine, keras_own = mine.astype("float64"), keras_own.astype("float64")
        assert np.max(np.abs(mine - keras_own)) < tolerance * max(1.0, np.max(np.abs(keras_own)))
