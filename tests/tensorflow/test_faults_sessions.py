"""tfvolta as people use it: several configs, models and fits in one process, in any order, beside everything else."""

from __future__ import annotations

import pathlib
import threading
from typing import Any, Callable, Iterator

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for
from tfvolta.callbacks import LossScaleMonitor, MixedPrecision, Throughput, XlaJit
from tfvolta.errors import LateError, LateWarning, NoEffectError
from tfvolta.evidence.store import read
from tfvolta.outcome import Status

X = np.random.RandomState(0).randn(32, 8).astype("float32")
Y = X[:, :1] * 0.5
HALF = {"policy": "mixed_float16"}
IDLE = (Status.PENDING, Status.LATE, Status.NO_EFFECT)


@pytest.fixture(autouse=True)
def _float32_policy() -> Iterator[None]:
    yield
    keras.mixed_precision.set_global_policy("float32")


def made(**arguments: Any) -> Any:
    layers = [keras.layers.Dense(width, name=name) for width, name in ((8, "a"), (8, "b"), (1, "head"))]
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError(), **{"jit_compile": False, **arguments})
    return model


def fit(model: Any, callbacks: Any, **arguments: Any) -> Any:
    return model.fit(X, Y, **{"batch_size": 8, "verbose": 0, "callbacks": callbacks, **arguments})


def config(folder: pathlib.Path, strict: bool = True, **sections: Any) -> Any:
    return tfvolta.load_config(run={"directory": str(folder), "strict": strict}, **sections)


def outcomes(callback: Any) -> dict[str, Status]:
    return {name: ending.outcome.status for name, ending in callback.session.endings.items()}


def in_force(model: Any, callback: Any) -> None:
    """The precision is applied, seen in the graph, and nothing was left open."""
    assert outcomes(callback)["retrofit"] is outcomes(callback)["loss_scale"] is Status.APPLIED
    assert not [name for name, status in outcomes(callback).items() if status in IDLE], callback.session.endings
    assert bridge_for(model).train_graph(model).count("MatMul", "float16")


def test_several_configs_in_a_row(tmp_path: pathlib.Path) -> None:
    """A notebook: each cell has a config, a strategy, a model, and a run of its own."""
    for number, scale in enumerate((1024.0, 2048.0, 512.0)):
        asked = config(tmp_path, mixed_precision={**HALF, "loss_scale": {"initial": scale}}, xla={"jit": "auto"})
        with tfvolta.build_strategy(asked).scope():
            model = made()
        callbacks = tfvolta.build_callbacks(asked, model)
        fit(model, callbacks)
        in_force(model, callbacks[0])
        assert len(list(tmp_path.glob("*/evidence.json"))) == number + 1
        evidence = read(callbacks[0].session.recorder.path)
        assert evidence.config.values["mixed_precision"]["loss_scale"]["initial"] == scale


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_a_fit_that_was_broken_off_and_another_one(tmp_path: pathlib.Path, error: type[BaseException]) -> None:
    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise error("stop")

    asked = config(tmp_path, mixed_precision=HALF)
    model = made()
    callbacks = tfvolta.build_callbacks(asked, model)
    with pytest.raises(error):
        fit(model, [*callbacks, Stop()])
    fit(model, callbacks, epochs=2)
    in_force(model, callbacks[0])
    throughput, monitor = callbacks[1:3]
    assert throughput.summary()["steps"] == monitor.summary()["attempted"] == 8
    assert throughput.summary()["fit"] == 2


def test_a_second_model_and_the_first_again(tmp_path: pathlib.Path) -> None:
    asked = config(tmp_path, mixed_precision=HALF)
    models = [made(), made()]
    callbacks = tfvolta.build_callbacks(asked, models[0])
    for model in (models[0], models[1], models[0]):
        fit(model, callbacks)
        in_force(model, callbacks[0])
    undone = callbacks[0].session.undo()
    assert undone["retrofit"] and undone["float32_islands"] and undone["loss_scale"]
    for model in models:
        assert type(model.optimizer).__name__ == "Adam"
        assert set(bridge_for(model).compute_dtypes(model).values()) == {"float32"}


def test_compile_between_fits() -> None:
    model, callback = made(), MixedPrecision()
    fit(model, [callback])
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    fit(model, [callback])
    in_force(model, callback)
    assert type(bridge_for(model).inner_optimizer(model.optimizer)).__name__ == "SGD"


def test_compile_between_fits_loses_steps_per_execution_and_says_so(tmp_path: pathlib.Path) -> None:
    model = made()
    asked = config(tmp_path, fit={"steps_per_execution": 2})
    callbacks = tfvolta.build_callbacks(asked, model)
    fit(model, callbacks)
    assert outcomes(callbacks[0])["steps_per_execution"] is Status.APPLIED
    model.compile("sgd", "mse", jit_compile=False)
    with pytest.raises(LateError, match="steps_per_execution=N"):
        fit(model, callbacks)
    fit(model, tfvolta.build_callbacks(asked, model))  # which is the line that was missing
    assert bridge_for(model).steps_per_execution(model) == 2


def test_evaluate_and_predict_before_between_and_after() -> None:
    model, callback = made(), MixedPrecision()
    before = model.predict(X, verbose=0)
    fit(model, [callback], validation_data=(X, Y))
    for _ in range(2):
        assert np.isfinite(model.evaluate(X, Y, verbose=0, callbacks=[callback]))
        assert model.predict(X, verbose=0, callbacks=[callback]).dtype == before.dtype == np.float32
        fit(model, [callback])
    in_force(model, callback)
    model.train_on_batch(X, Y)
    model.test_on_batch(X, Y)
    model.predict_on_batch(X)


def test_a_model_saved_and_loaded_between_fits(tmp_path: pathlib.Path) -> None:
    model, callback = made(), MixedPrecision(initial_scale=1024.0)
    for number in (1, 2, 3):
        fit(model, [callback])
        in_force(model, callback)
        model.save(tmp_path / "model.keras")
        model = keras.models.load_model(tmp_path / "model.keras")
        assert int(model.optimizer.iterations.numpy()) == 4 * number
        assert bridge_for(model).loss_scale(model.optimizer).scale == 1024.0


ORDERS: dict[str, Callable[[list[Any], list[Any]], list[Any]]] = {
    "ours first": lambda ours, theirs: ours + theirs,
    "ours last": lambda ours, theirs: theirs + ours,
    "in between": lambda ours, theirs: [*theirs[:2], *ours[1:], *theirs[2:], ours[0]],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("per_call", [1, 3])
def test_with_keras_own_callbacks(tmp_path: pathlib.Path, order: str, per_call: int) -> None:
    model = made(steps_per_execution=per_call)
    ours = [MixedPrecision(initial_scale=256.0), Throughput(), LossScaleMonitor()]
    theirs = [
        keras.callbacks.ModelCheckpoint(str(tmp_path / "model.keras")),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, restore_best_weights=True),
        keras.callbacks.BackupAndRestore(str(tmp_path / "backup")),
        keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.ReduceLROnPlateau(monitor="loss"),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.01),
    ]
    history = fit(model, ORDERS[order](ours, theirs), epochs=3, validation_split=0.25)
    epochs = len(history.history["loss"])
    in_force(model, ours[0])
    assert ours[1].summary()["steps"] == ours[2].summary()["attempted"] == 3 * epochs
    assert (tmp_path / "log.csv").read_text().count("\n") == epochs + 1
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer).__name__.startswith("LossScaleOptimizer")
    assert int(loaded.optimizer.iterations.numpy()) == 3 * epochs
    fit(loaded, None)


def test_the_same_callback_twice_and_not_in_a_list() -> None:
    model = made()
    fit(model, [MixedPrecision(), MixedPrecision(), XlaJit(False), XlaJit(False)])
    inner = bridge_for(model).inner_optimizer(model.optimizer)
    assert type(inner).__name__ == "Adam" and bridge_for(model).inner_optimizer(inner) is inner
    callback = MixedPrecision()
    fit(made(), callback)
    assert outcomes(callback)["retrofit"] is Status.APPLIED


@pytest.mark.parametrize(
    "contradicting", [lambda: (MixedPrecision(), MixedPrecision("float32")), lambda: (XlaJit(True), XlaJit(False))]
)
def test_callbacks_that_contradict_each_other_are_refused(contradicting: Callable[[], tuple[Any, Any]]) -> None:
    with pytest.raises(NoEffectError):
        fit(made(), list(contradicting()))


@pytest.mark.parametrize("make", [MixedPrecision, XlaJit])
def test_fit_in_a_thread(make: Callable[[], Any]) -> None:
    model, callback, errors = made(), make(), []

    def work() -> None:
        try:
            fit(model, [callback, Throughput(), LossScaleMonitor()])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    assert Status.APPLIED in outcomes(callback).values() and not set(IDLE) & set(outcomes(callback).values())


@pytest.mark.parametrize("strict", [True, False])
def test_xla_for_an_eager_model_is_refused_alike_on_every_keras(tmp_path: pathlib.Path, strict: bool) -> None:
    model = made(run_eagerly=True)
    callbacks = tfvolta.build_callbacks(config(tmp_path, strict, xla={"jit": "model"}), model)
    if strict:
        with pytest.raises(NoEffectError, match="run_eagerly"):
            fit(model, callbacks)
    else:
        with pytest.warns(tfvolta.errors.NoEffectWarning, match="run_eagerly"):
            fit(model, callbacks)


def test_a_whole_plan_for_an_eager_model(tmp_path: pathlib.Path) -> None:
    model = made(run_eagerly=True)
    callbacks = tfvolta.build_callbacks(config(tmp_path, mixed_precision=HALF, xla={"jit": "auto"}), model)
    fit(model, callbacks)
    assert not set(IDLE) & set(outcomes(callbacks[0]).values()), callbacks[0].session.endings
    (throughput,) = (each for each in callbacks if isinstance(each, Throughput))
    (scale,) = (each for each in callbacks if isinstance(each, LossScaleMonitor))
    assert throughput.summary()["steps"] == scale.summary()["attempted"] == 4


def test_sections_that_are_null(tmp_path: pathlib.Path) -> None:
    asked = config(tmp_path, devices=None, mixed_precision=None, xla=None, strategy=None, debug=None, fit=None)
    tfvolta.build_strategy(asked)
    model = made()
    callbacks = tfvolta.build_callbacks(asked, model)
    fit(model, callbacks)
    assert outcomes(callbacks[0]) == {} and callbacks[1].summary()["steps"] == 4


@pytest.mark.parametrize("strict", [True, False])
def test_late_twice(tmp_path: pathlib.Path, strict: bool) -> None:
    """A setting that came too late stays so, however often it is asked for."""
    tf.constant(1.0)
    asked = config(tmp_path, strict, devices={"intra_op_threads": 3})
    for attempt in range(2):
        if strict and attempt == 0:
            with pytest.raises(LateError, match="before the first tensor"):
                tfvolta.build_strategy(asked)
        elif attempt == 0:
            with pytest.warns(LateWarning):
                tfvolta.build_strategy(asked)
    model = made()
    if strict:
        with pytest.raises(LateError):
            fit(model, tfvolta.build_callbacks(asked))
    else:
        with pytest.warns(LateWarning):
            fit(model, tfvolta.build_callbacks(asked))
    files = list(tmp_path.glob("*/evidence.json"))
    assert len(files) == 1 and read(files[0]).outcomes["intra_op_threads"].status is Status.LATE


def test_a_fit_of_no_epochs_and_one_of_no_data() -> None:
    model, callback = made(), MixedPrecision()
    if STACK == "tf_keras":
        with pytest.raises(ValueError, match="epochs to be positive"):
            fit(model, [callback], epochs=0)
    else:
        fit(model, [callback], epochs=0)
        assert outcomes(callback)["retrofit"] is Status.PENDING
    empty = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).take(0)
    if KERAS3:
        model.fit(empty, verbose=0, callbacks=[callback, Throughput(), LossScaleMonitor()])
    else:
        with pytest.raises(ValueError, match="non-empty"):
            model.fit(empty, verbose=0, callbacks=[callback])
    fit(model, [callback])
    in_force(model, callback)


def test_a_model_that_was_never_compiled() -> None:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    with pytest.raises((ValueError, RuntimeError), match="compile"):
        fit(model, [MixedPrecision()])


def test_training_goes_on_when_the_disk_does_not(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tfvolta.errors import EvidenceWarning
    from tfvolta.evidence import store

    model = made()
    callbacks = tfvolta.build_callbacks(config(tmp_path, mixed_precision=HALF), model)

    def full(path: Any, content: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write_durably", full)
    with pytest.warns(EvidenceWarning, match="disk is full") as caught:
        history = fit(model, callbacks, epochs=2)
    assert len(history.history["loss"]) == 2
    assert len([warning for warning in caught if issubclass(warning.category, EvidenceWarning)]) == 1
