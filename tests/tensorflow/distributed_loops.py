"""Custom training loops on one and on two logical CPUs; prints the weights that they came to as one JSON document.

Run as ``python -m tests.tensorflow.distributed_loops``: a process can split its CPU only once.
"""

from __future__ import annotations

import json
from typing import Any, Callable

import numpy as np

from tests.stack import KERAS3, keras, tf
from tfvolta import distributed_loop, precision
from tfvolta.errors import TfvoltaError

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(24, 5, 3).astype("float32")
Y = RANDOM.randn(24, 5, 1).astype("float32")
WEIGHTS = RANDOM.rand(24, 5).astype("float32")  # Keras 3 joins masks and weights of the same shape only


def squares(y_true: Any, y_pred: Any) -> Any:
    return tf.square(y_true - y_pred)


def mean_of_squares(y_true: Any, y_pred: Any) -> Any:
    return tf.reduce_mean(tf.square(y_true - y_pred))


def keras_losses() -> dict[str, Callable[[], Any]]:
    names = {"sum": "sum", "none": "none"}
    if KERAS3:
        names["weights"] = "mean_with_sample_weight"
    own = {name: lambda kind=kind: keras.losses.MeanSquaredError(reduction=kind) for name, kind in names.items()}
    return {"default": keras.losses.MeanSquaredError, **own}  # type: ignore[dict-item]


def one_weight() -> Any:
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])


def trained(strategy: Any, loss: Any, data: Any, make: Callable[[], Any], **settings: Any) -> tuple[Any, list[Any]]:
    """A model after a pass over a data set of whole batches, and what each step reported."""
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = make()
        optimizer = settings.get("optimizer", lambda: keras.optimizers.SGD(settings.get("rate", 1.0)))()
        optimizer.build(model.trainable_variables)

    def replica(batch: Any) -> Any:
        return distributed_loop.train_step(model, optimizer, loss, batch, settings.get("global_batch"))

    @tf.function  # type: ignore[untyped-decorator]
    def step(iterator: Any) -> Any:
        return strategy.run(replica, args=(next(iterator),))

    iterator = iter(strategy.experimental_distribute_dataset(data))
    return model, [distributed_loop.report(strategy, step(iterator)) for _ in range(int(data.cardinality()))]


def ones(rows: int) -> Any:
    return tf.data.Dataset.from_tensor_slices((np.ones((rows, 1), "f"), np.ones((rows, 1), "f"))).batch(rows)


def weight_of(strategy: Any, loss: Any, rows: int = 4, **settings: Any) -> list[Any]:
    model, (said,) = trained(strategy, loss, ones(rows), one_weight, **settings)
    return [float(model.get_weights()[0][0, 0]), said]


def case_of_the_thread(strategy: Any) -> dict[str, Any]:
    """One step on ones from a weight of zero, whose gradient is -2."""
    return {
        "keras": weight_of(strategy, keras.losses.MeanSquaredError()),
        "function": weight_of(strategy, squares),
        "scalar function": weight_of(strategy, mean_of_squares),
        "given size": weight_of(strategy, keras.losses.MeanSquaredError(), global_batch=4),
        "uneven": weight_of(strategy, keras.losses.MeanSquaredError(), rows=3),
        "uneven scalar": weight_of(strategy, mean_of_squares, rows=3),
        "one row": weight_of(strategy, squares, rows=1),
        "loss scale": weight_of(
            strategy,
            keras.losses.MeanSquaredError(),
            optimizer=lambda: precision.loss_scale_optimizer(keras.optimizers.SGD(1.0), initial=1024.0),
        ),
    }


def sequence_model() -> Any:
    """Masks its input, regularises, and has an output for each time step."""
    regularizer = keras.regularizers.L2(0.05)
    layers = [keras.layers.Masking(0.0), keras.layers.Dense(1, kernel_regularizer=regularizer)]
    return keras.Sequential([keras.Input((5, 3)), *layers])


def sequences(weighted: bool) -> Any:
    x = X.copy()
    x[3:9, 2:] = 0.0  # padding, not the same amount on both replicas
    arrays = (x, Y, WEIGHTS) if weighted else (x, Y)
    return tf.data.Dataset.from_tensor_slices(arrays).batch(7)  # the last batch has three rows


def masked(strategy: Any) -> dict[str, Any]:
    """Three uneven steps for every reduction, with masks, sample weights and a regulariser."""
    found = {}
    for name, make in keras_losses().items():
        for weighted in (False, True):
            model, said = trained(strategy, make(), sequences(weighted), sequence_model, rate=0.05)
            found[f"{name} {'weighted' if weighted else 'plain'}"] = {
                "weights": [float(value) for array in model.get_weights() for value in np.ravel(array)],
                "losses": [each["loss"] for each in said],
            }
    return found


def by_keras() -> dict[str, Any]:
    """The same by Keras's own fit, in one process."""
    found = {}
    for weighted in (False, True):
        keras.utils.set_random_seed(3)
        model = sequence_model()
        model.compile(keras.optimizers.SGD(0.05), keras.losses.MeanSquaredError())
        model.fit(sequences(weighted), verbose=0)
        found[f"default {'weighted' if weighted else 'plain'}"] = [
            float(value) for array in model.get_weights() for value in np.ravel(array)
        ]
    return found


def refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except TfvoltaError as error:
        return str(error)
    return "accepted"


def refusals(strategy: Any) -> dict[str, str]:
    y = tf.ones((2, 1))
    with strategy.scope():
        outside = refused(lambda: distributed_loop.replica_loss(squares, y, y))
    return {
        "outside": outside,
        "name": refused(lambda: distributed_loop.replica_loss("mse", y, y)),
        "size": refused(lambda: distributed_loop.replica_loss(squares, y, y, global_batch=0)),
    }


def main() -> dict[str, Any]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategies = {
        "default": tf.distribute.get_strategy(),
        "1": tf.distribute.OneDeviceStrategy("CPU:0"),
        "2": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    }
    return {
        "one step": {name: case_of_the_thread(strategy) for name, strategy in strategies.items()},
        "masked": {name: masked(strategies[name]) for name in ("1", "2")},
        "keras": by_keras(),
        "refusals": refusals(strategies["2"]),
    }


if __name__ == "__main__":
    print("RESULT " + json.dumps(main()))
