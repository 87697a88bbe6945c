"""What two ranks agree on, refuse and write; part of ``horovod_runs``."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import tempfile
import warnings
from functools import partial
from typing import Any, Callable

import numpy as np

import tfvolta
from tests.processes.horovod_models import (
    BATCH,
    KERAS3,
    LEGACY,
    X,
    Y,
    dense_model,
    endings,
    error_of,
    fit,
    flat,
    iterations_of,
    keras,
    relative,
    session_of,
    share,
    tf,
    train,
)


def uneven(rank: int) -> dict[str, Any]:
    """Four batches on one rank, two on the other: refused on both, or cut to two, on arrays and on data sets."""
    rows = 4 * BATCH if rank == 0 else 2 * BATCH
    data = share(X, rank)[:rows], share(Y, rank)[:rows]
    batches = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    steps: list[int] = []
    count = keras.callbacks.LambdaCallback(on_epoch_begin=lambda e, logs: steps.append(0), on_batch_end=_add_to(steps))
    model, single = dense_model(), dense_model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refused = error_of(lambda: train(model, "sgd", data, session_of()))
        train(model, keras.optimizers.SGD(0.05), data, session_of(data={"uneven": "cut"}), epochs=2, callbacks=[count])
        model.fit(batches, epochs=2, verbose=0, callbacks=[*callbacks_of(data={"uneven": "cut"}), count])
    for _ in range(2):
        train(single, keras.optimizers.SGD(0.05), (X[: 4 * BATCH], Y[: 4 * BATCH]), epochs=2)
    return {
        "refused": refused,
        "steps": steps,
        "difference": relative(model, single),
        "warnings": [str(each.message) for each in caught if "uneven" in str(each.message)],
    }


def _add_to(steps: list[int]) -> Callable[[int, Any], None]:
    def add(batch: int, logs: Any) -> None:
        steps[-1] += 1

    return add


def callbacks_of(**sections: Any) -> list[Any]:
    """The callbacks of a config, for a fit of one's own."""
    from tfvolta.callbacks.build import session_callbacks

    return session_callbacks(session_of(**sections))


def unknown(rank: int) -> dict[str, Any]:
    """Data sets that do not say how many batches they have."""
    rows = tf.data.Dataset.from_tensor_slices((share(X, rank)[:16], share(Y, rank)[:16])).batch(BATCH)
    model = dense_model()
    model.compile("sgd", "mse", jit_compile=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows.filter(lambda x, y: True), verbose=0, callbacks=callbacks_of())
    return {"warnings": [str(each.message) for each in caught if "batches an epoch by rank" in str(each.message)]}


def one_callback(rank: int) -> dict[str, Any]:
    """A model that is built, compiled and trained already, with ``tfvolta.callbacks.Horovod`` and nothing else."""
    model, single = dense_model(), dense_model()
    for each in (model, single):
        each.compile(keras.optimizers.SGD(0.05, momentum=0.9), keras.losses.MeanSquaredError(), jit_compile=False)
        each.fit(X[:32], Y[:32], batch_size=16, shuffle=False, verbose=0)
    callback = tfvolta.callbacks.Horovod(groups=2)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
        logger = keras.callbacks.CSVLogger(os.path.join(folder, "log.csv"))
        data = share(X, rank), share(Y, rank)
        model.fit(*data, batch_size=BATCH, shuffle=False, verbose=0, epochs=2, callbacks=[callback, logger])
        files = sorted(path.name for path in pathlib.Path(folder).iterdir())
    single.fit(X, Y, batch_size=2 * BATCH, shuffle=False, verbose=0, epochs=2)
    ended = {name: ending.outcome.status.value for name, ending in callback.session.endings.items()}
    return {
        "difference": relative(model, single),
        "ended": ended,
        "files": files,
        "said": said.getvalue(),
        **endings(callback.session),
    }


def loaded(rank: int) -> dict[str, Any]:
    """A model that was trained over ranks, saved, and loaded by plain Keras: with a class of Keras's own, and alone."""
    model = dense_model()
    train(model, keras.optimizers.Adam(0.01), (share(X, rank), share(Y, rank)), session_of(), epochs=1)
    found: dict[str, Any] = {}
    models = {ending: saved_and_loaded(model, ending) for ending in (".keras", ".h5")}
    for ending, plain in models.items():
        name = f"{type(plain.optimizer).__module__.split('.')[0]}.{type(plain.optimizer).__name__}"
        found.setdefault("audit", [str(each) for each in tfvolta.audit.audit_model(plain)])
        check = [tfvolta.callbacks.RankCheck()]
        found[ending] = {"optimizer": name, "plain": error_of(partial(fit, plain, (X[:16], Y[:16]), callbacks=check))}
    session, again = session_of(), models[".keras"]  # plain Keras 3 cannot train what it loads from HDF5
    fit(again, (share(X, rank), share(Y, rank)), session)
    fit(model, (share(X, rank), share(Y, rank)), session_of())
    found["again"] = {"weights": [float(value) for value in flat(again)], "iterations": iterations_of(again)}
    return {**found, "difference": relative(again, model), **endings(session)}


def saved_and_loaded(model: Any, ending: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"model{ending}")
        model.save(path)
        return keras.models.load_model(path)


def diverged(rank: int) -> dict[str, str]:
    """A callback of rank 1 changes a weight."""

    def disturb(epoch: int, logs: Any) -> None:
        if rank == 1 and epoch == 1:
            kernel, bias = model.layers[-1].get_weights()
            model.layers[-1].set_weights([kernel, bias + 0.5])

    model = dense_model()
    change = keras.callbacks.LambdaCallback(on_epoch_begin=disturb)
    data = share(X, rank)[:16], share(Y, rank)[:16]
    return {"raised": error_of(lambda: train(model, "sgd", data, session_of(), epochs=3, callbacks=[change]))}


def parted(rank: int) -> dict[str, str]:
    """A callback of rank 1 ends training after the first epoch."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = rank == 1

    data = share(X, rank)[:16], share(Y, rank)[:16]
    return {"raised": error_of(lambda: train(dense_model(), "sgd", data, session_of(), epochs=3, callbacks=[Stop()]))}


def different_models(rank: int) -> dict[str, str]:
    """Ranks whose models have other shapes."""
    data = share(X, rank)[:16], share(Y, rank)[:16]
    return {"raised": error_of(lambda: train(dense_model(width=8 + rank), "sgd", data, session_of()))}


def output(rank: int) -> dict[str, Any]:
    """What a fit prints and writes, with a progress bar, a CSV file and a checkpoint."""
    data = share(X, rank)[:16], share(Y, rank)[:16]
    with tempfile.TemporaryDirectory() as folder:
        backup = keras.callbacks.BackupAndRestore(os.path.join(folder, f"backup_{rank}"))
        writers = [
            backup,
            keras.callbacks.CSVLogger(os.path.join(folder, "log.csv")),
            keras.callbacks.ModelCheckpoint(os.path.join(folder, "last.keras"), verbose=0),
        ]
        printed, said = io.StringIO(), io.StringIO()
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
        ):
            warnings.simplefilter("always")
            train(dense_model(), "sgd", data, session_of(), verbose=2, callbacks=writers)
        files = sorted(path.name for path in pathlib.Path(folder).iterdir() if path.is_file())
    warned = [str(each.message) for each in caught if "BackupAndRestore" in str(each.message)]
    return {"printed": printed.getvalue(), "said": said.getvalue(), "files": files, "warned": warned}


def metrics(rank: int) -> dict[str, Any]:
    """Metrics of ranks with other numbers of examples, training and validation, against all examples in one process."""
    rows, validation = (16, 16) if rank == 0 else (12, 4)
    model, session = dense_model(), session_of()
    data, held_out = (
        (share(X, rank)[:rows], share(Y, rank)[:rows]),
        (share(X, rank)[-validation:], share(Y, rank)[-validation:]),
    )
    compiled = {"metrics": ["mae"]}
    history = train(
        model, keras.optimizers.SGD(0.0), data, session, epochs=2, validation_data=held_out, compiled=compiled
    )
    parts = [(share(X, 0)[:16], share(Y, 0)[:16]), (share(X, 1)[:12], share(Y, 1)[:12])]
    tests = [(share(X, 0)[-16:], share(Y, 0)[-16:]), (share(X, 1)[-4:], share(Y, 1)[-4:])]
    reference = [
        [float(value) for value in model.evaluate(*(np.concatenate(each) for each in zip(*group)), verbose=0)]
        for group in (parts, tests)
    ]
    return {"history": history, "reference": reference}


class Unreduced(keras.Model):  # type: ignore[misc,name-defined]
    """A train step that changes its weights past the optimiser."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(inputs, training=True) - targets))
        for gradient, variable in zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables):
            variable.assign_sub(0.01 * gradient)
        return {"loss": loss}


def not_reduced(rank: int) -> dict[str, str]:
    """A train step of its own that never comes by the optimiser."""
    keras.utils.set_random_seed(7)
    model = Unreduced()
    model(X[:2])
    data = share(X, rank)[:16], share(Y, rank)[:16]
    return {"raised": error_of(lambda: train(model, "sgd", data, session_of()))}


def own_wrapper(rank: int) -> dict[str, Any]:
    """Scripts that call ``hvd.DistributedOptimizer`` themselves; Horovod's wrapper is for Keras 2."""
    if KERAS3:
        return {}
    import horovod.tensorflow.keras as hvd

    data, wrap = (share(X, rank), share(Y, rank)), hvd.DistributedOptimizer
    plain, single = dense_model(), dense_model()
    session = session_of()
    train(plain, wrap(keras.optimizers.SGD(0.05)), data, session)
    average = hvd.callbacks.MetricAverageCallback()  # reads keras.backend, which tfvolta has put right by now
    train(single, keras.optimizers.SGD(0.05), (X, Y))
    asked = session_of(communication={"groups": 2})
    found = {
        "difference": relative(plain, single),
        "ends": endings(session)["communication"],
        "asked": error_of(partial(train, dense_model(), wrap(keras.optimizers.SGD(0.05)), data, asked)),
        "backend": average.backend.__name__.split(".")[0],
    }
    for name, make in (("new", keras.optimizers.SGD), ("legacy", LEGACY.SGD)):
        wrapped = wrap(make(0.01), backward_passes_per_step=2, average_aggregated_gradients=True)
        half = session_of(mixed_precision={"policy": "mixed_float16"})
        found[name] = error_of(partial(train, dense_model(), wrapped, data, half))
        half.undo()
        half.context.bridge.set_global_policy("float32")
    return found


CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "uneven": uneven,
    "unknown": unknown,
    "one callback": one_callback,
    "loaded": loaded,
    "diverged": diverged,
    "parted": parted,
    "different models": different_models,
    "output": output,
    "metrics": metrics,
    "not reduced": not_reduced,
    "own wrapper": own_wrapper,
}
