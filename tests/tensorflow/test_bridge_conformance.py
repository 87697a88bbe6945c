"""What every bridge must do alike, on the Keras of this process."""

from __future__ import annotations

import inspect
from typing import Any, Iterator

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras
from tests.tensorflow.bridge_models import KINDS, data, functional, nested
from tfvolta.bridge import bridge_for, bridge_for_stack, stack_of
from tfvolta.bridge.base import Bridge, Hooks, LossScaleSettings

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)


@pytest.fixture(autouse=True)
def _same_weights_and_policy() -> Iterator[None]:
    keras.utils.set_random_seed(1)
    yield
    BRIDGE.set_global_policy("float32")


class Retrofits(keras.callbacks.Callback):
    """What a mixed-precision callback does."""

    def __init__(self, settings: Any = None, **arguments: Any) -> None:
        super().__init__()
        self.settings = settings or LossScaleSettings(initial=1024.0)
        self.arguments = arguments
        self.result: Any = None
        self.wrapped: list[bool] = []

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self.result = BRIDGE.retrofit(model, "mixed_float16", **self.arguments)
        self.wrapped.append(BRIDGE.install_loss_scale(model, self.settings))


def compiled(kind: str = "functional", **arguments: Any) -> Any:
    model = KINDS[kind]()
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", **arguments)
    return model


def fit(model: Any, *callbacks: Any, epochs: int = 1, **arguments: Any) -> list[float]:
    x, y = data()
    given = {"batch_size": 16, "epochs": epochs, "verbose": 0, "shuffle": False, **arguments}
    losses: list[float] = model.fit(x, y, callbacks=list(callbacks), **given).history["loss"]
    return losses


def test_the_bridge_has_every_method_with_the_contract_s_parameters() -> None:
    for name, member in vars(Bridge).items():
        if name.startswith("_") or not callable(member):
            continue
        wanted = list(inspect.signature(member).parameters)[1:]
        assert list(inspect.signature(getattr(BRIDGE, name)).parameters) == wanted, name
    assert BRIDGE.stack == STACK and BRIDGE.keras.layers.Dense is layers.Dense
    model = functional()
    assert stack_of(model) == STACK and bridge_for(model) is BRIDGE


@pytest.mark.parametrize("kind", KINDS)
def test_a_retrofitted_fit_computes_in_float16(kind: str) -> None:
    model = compiled(kind)
    fit(model)  # traced in float32 before
    assert BRIDGE.train_graph(model).count("Conv2D", "float16") == 0
    callback = Retrofits()
    loss = fit(model, callback, epochs=3)
    assert np.isfinite(loss).all() and loss[-1] < loss[0]
    assert callback.result.refused == () and callback.wrapped == [True]
    assert any(path.split("/")[-1] == "out" for path in callback.result.islands)
    graph = BRIDGE.train_graph(model)
    assert graph.count("Conv2D", "float16") > 0 and graph.count("Conv2D", "float32") == 0
    assert graph.count("MatMul", "float16") > 0
    assert graph.count("MatMul", "float32") == 3 * graph.traces  # the output layer, forward and backward
    assert graph.count("Softmax", "float16") == 0
    assert {weight.dtype for weight in model.get_weights()} == {np.dtype("float32")}
    assert model.predict(data(2)[0], verbose=0).dtype == "float32"
    counts = BRIDGE.step_counts(model)
    assert counts.applied == 16 and counts.skipped in (0, None)


def test_retrofit_twice_changes_nothing_and_undo_restores() -> None:
    model = compiled()
    before = BRIDGE.compute_dtypes(model)
    first = BRIDGE.retrofit(model, "mixed_float16", float32_layers=("BatchNormalization",))
    assert "float16" in BRIDGE.compute_dtypes(model).values() and len(first.islands) == 2
    second = BRIDGE.retrofit(model, "mixed_float16", float32_layers=("BatchNormalization",))
    assert second.converted == () and set(second.islands) == set(first.islands)
    BRIDGE.undo_retrofit(model, first)
    assert BRIDGE.compute_dtypes(model) == before and set(before.values()) == {"float32"}
    fit(model)
    assert BRIDGE.train_graph(model).count("Conv2D", "float16") == 0


def test_layers_and_output_layers_by_unique_paths() -> None:
    model = nested()
    paths = [path for path, _ in BRIDGE.layers(model)]
    assert len(paths) == len(set(paths)) and "head/out" in paths
    assert len({id(layer) for _, layer in BRIDGE.layers(model)}) == len(paths)
    assert BRIDGE.output_layers(model) == ["head/out"]


def test_global_policy_binds_to_layers_constructed_afterwards() -> None:
    assert BRIDGE.global_policy() == "float32"
    BRIDGE.set_global_policy("mixed_float16")
    assert BRIDGE.global_policy() == "mixed_float16" and layers.Dense(1).compute_dtype == "float16"


def test_an_overflow_halves_the_scale_and_keeps_the_weights() -> None:
    model = compiled()
    x, y = data()
    x[16:32] = np.inf
    model.fit(x, y, batch_size=16, verbose=0, shuffle=False, callbacks=[Retrofits()])
    state, counts = BRIDGE.loss_scale(model.optimizer), BRIDGE.step_counts(model)
    assert (state.scale, state.dynamic, state.good_steps) == (512.0, True, 2)
    assert counts.applied == 3 and counts.skipped == 1 and counts.attempted == 4
    assert all(np.isfinite(v.numpy()).all() for v in model.trainable_variables)  # batch statistics do see the batch


def test_a_fixed_scale_stays_and_skips_too() -> None:
    model = compiled()
    x, y = data()
    x[16:32] = np.inf
    callback = Retrofits(LossScaleSettings(fixed=256.0))
    model.fit(x, y, batch_size=16, verbose=0, shuffle=False, callbacks=[callback])
    state = BRIDGE.loss_scale(model.optimizer)
    assert (state.scale, state.dynamic, state.good_steps) == (256.0, False, None)
    assert BRIDGE.step_counts(model).applied == 3
    assert all(np.isfinite(v.numpy()).all() for v in model.trainable_variables)  # batch statistics do see the batch


def test_loss_scaling_is_never_nested_and_can_be_removed() -> None:
    model = compiled()
    fit(model)
    inner = model.optimizer
    assert BRIDGE.loss_scale(inner) is None
    assert BRIDGE.install_loss_scale(model, LossScaleSettings()) is True
    wrapper = model.optimizer
    assert wrapper.inner_optimizer is inner and BRIDGE.install_loss_scale(model, LossScaleSettings()) is False
    assert model.optimizer is wrapper and BRIDGE.scale_optimizer(wrapper, LossScaleSettings()) is wrapper
    fit(model)
    assert BRIDGE.step_counts(model).applied == 8
    assert BRIDGE.remove_loss_scale(model) is True and model.optimizer is inner
    fit(model)
    assert int(inner.iterations) == 12 and BRIDGE.remove_loss_scale(model) is False


@pytest.mark.parametrize("hook", ["set_model", "on_train_begin", "on_epoch_begin"])
def test_jit_from_any_hook_is_seen_in_the_graph(hook: str) -> None:
    class Switches(keras.callbacks.Callback):
        def set_model(self, model: Any) -> None:
            super().set_model(model)
            self.switch("set_model")

        def on_train_begin(self, logs: Any = None) -> None:
            self.switch("on_train_begin")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.switch("on_epoch_begin")

        def switch(self, here: str) -> None:
            if here == hook and not BRIDGE.jit(self.model).effective:
                BRIDGE.set_jit(self.model, True)

    model = compiled()
    fit(model)
    assert not BRIDGE.train_graph(model).must_compile and BRIDGE.jit(model).effective is False
    fit(model, Switches(), epochs=2)
    assert BRIDGE.train_graph(model).must_compile and BRIDGE.jit(model).effective


def test_traced_compiled_and_reset() -> None:
    model = functional()
    assert not BRIDGE.is_compiled(model) and not BRIDGE.is_traced(model) and BRIDGE.train_graph(model) is None
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert BRIDGE.is_compiled(model) and not BRIDGE.is_traced(model)
    fit(model)
    assert BRIDGE.is_traced(model)
    BRIDGE.reset_functions(model)
    assert not BRIDGE.is_traced(model) and BRIDGE.train_graph(model) is None
    fit(model)
    assert BRIDGE.is_traced(model)


def test_steps_per_execution_outside_fit() -> None:
    model = compiled()
    fit(model)
    BRIDGE.set_steps_per_execution(model, 2)
    ends: list[int] = []
    fit(model, keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch)))
    assert BRIDGE.steps_per_execution(model) == 2 and ends == [1, 3]
    assert int(model.optimizer.iterations) == 8


def test_examples_seen_while_training() -> None:
    model = compiled()
    seen: list[Any] = []

    def read(batch: int, logs: Any) -> None:
        seen.append(BRIDGE.examples_seen(model))

    fit(model, keras.callbacks.LambdaCallback(on_train_batch_end=read), batch_size=24)
    assert seen == ([24, 48, 64] if KERAS3 else seen)
    assert all(value is None or value in (24, 48, 64) for value in seen)


@pytest.mark.parametrize("kind", ["functional", "sequential", "nested"])
def test_a_saved_model_remembers_optimiser_and_scale(kind: str, tmp_path: Any) -> None:
    model = compiled(kind)
    fit(model, Retrofits(LossScaleSettings(initial=1024.0, growth_steps=3)))
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    found, left = BRIDGE.loss_scale(loaded.optimizer), BRIDGE.loss_scale(model.optimizer)
    assert (found.scale, found.dynamic) == (left.scale, left.dynamic) == (2048.0, True)
    assert found.good_steps == (left.good_steps if KERAS3 else 0)  # a .keras file of Keras 2 does not hold the counter
    assert BRIDGE.step_counts(loaded).applied == 4
    x, _ = data(4)
    np.testing.assert_allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=2e-3)


def test_a_callback_list_serves_fit_as_a_list_of_callbacks_does() -> None:
    seen: list[float] = []

    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(logs["loss"])

    model = compiled()
    x, y = data()
    callbacks = BRIDGE.callback_list([Looks()], model, verbose=0, epochs=2)
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
    assert len(seen) == 8 and all(isinstance(value, float) for value in seen)
    assert len(history.history["loss"]) == 2


def test_interception_of_a_script_left_as_it_is() -> None:
    calls: list[str] = []

    def compile_arguments(model: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        calls.append("compile " + ",".join(sorted(arguments)))
        return arguments

    def fit_callbacks(model: Any, callbacks: Any, arguments: Any) -> Any:
        calls.append(f"fit {arguments['epochs']}")
        return [*(callbacks or []), Retrofits()]

    undo = BRIDGE.intercept(
        Hooks(
            before_layer=lambda: calls.append("layer"),
            compile_arguments=compile_arguments,
            after_compile=lambda model: calls.append("compiled"),
            fit_callbacks=fit_callbacks,
            after_fit=lambda model: calls.append("fitted"),
        )
    )
    try:
        model = functional()
        model.compile("adam", "sparse_categorical_crossentropy")
        x, y = data()
        model.fit(x, y, 16, 2, 0)
    finally:
        undo()
    assert calls == ["layer", "compile loss,optimizer", "compiled", "fit 2", "fitted"]
    assert BRIDGE.train_graph(model).count("Conv2D", "float16") > 0
    untouched = compiled()
    fit(untouched)
    assert len(calls) == 5 and BRIDGE.train_graph(untouched).count("Conv2D", "float16") == 0


def test_xla_obstacles_are_sentences_with_a_path() -> None:
    words = keras.Input((1,), dtype="string", name="words")
    hot = layers.StringLookup(vocabulary=["a", "b"], output_mode="multi_hot", name="lookup")(words)
    model = keras.Model(words, layers.Dense(1)(hot))
    lines = BRIDGE.xla_obstacles(model)
    assert any("lookup" in line and ":" in line for line in lines)
    assert BRIDGE.xla_obstacles(functional()) == []
