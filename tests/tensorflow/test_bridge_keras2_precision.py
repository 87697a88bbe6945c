"""Retrofitting mixed precision to Keras 2 models: what is computed in which precision, and that it can be taken back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.errors import BridgeError

L = keras.layers
BRIDGE = models.bridge()
AUTOCAST = BRIDGE.package.autocast.AutoCastVariable


def mixed(model: Any, **arguments: Any) -> Any:
    """Retrofit and loss scaling, as the callback does both."""
    result = BRIDGE.retrofit(model, "mixed_float16", **arguments)
    BRIDGE.install_loss_scale(model, LossScaleSettings())
    return result


def float32_products(model: Any) -> int:
    """Forward and backward products and convolutions in float32."""
    return models.computing(BRIDGE.train_graph(model), "float32")


@pytest.mark.parametrize("hook", ["set_model", "on_train_begin", "on_epoch_begin"])
@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_every_hook_makes_the_step_compute_in_float16(kind: str, hook: str) -> None:
    model = models.compiled(models.IMAGE_MODELS[kind])
    losses = models.train(model, epochs=3, callbacks=[models.Arrange(mixed, hook)])
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("kind", [*models.IMAGE_MODELS, "zoo"])
def test_computes_in_float16_apart_from_the_outputs(kind: str) -> None:
    build = models.zoo if kind == "zoo" else models.IMAGE_MODELS[kind]
    model = models.compiled(build)
    models.train(model, epochs=1)  # traced in float32 first
    assert models.computing(BRIDGE.train_graph(model), "float16") == 0
    result = mixed(model)
    losses = models.train(model, epochs=3)
    summary = BRIDGE.train_graph(model)
    # Each dense output layer has three float32 products: forward, and the gradients of its input and kernel.
    dense_islands = sum(1 for path in result.islands if isinstance(dict(BRIDGE.layers(model))[path], L.Dense))
    assert models.computing(summary, "float32") <= 3 * dense_islands * summary.traces
    assert models.computing(summary, "float16") > 0
    assert result.refused == ()
    assert {variable.dtype.name for variable in model.variables} == {"float32"}
    assert losses[-1] < losses[0]
    assert all(BRIDGE.compute_dtypes(model)[path] == "float32" for path in BRIDGE.output_layers(model))


@pytest.mark.parametrize("kind", ["functional", "sequential", "nested", "subclassed", "zoo"])
def test_loss_is_bit_identical_to_a_model_built_under_the_policy(kind: str) -> None:
    build = models.zoo if kind == "zoo" else models.IMAGE_MODELS[kind]
    model = models.compiled(build)
    result = mixed(model)
    positions = [index for index, (path, _) in enumerate(BRIDGE.layers(model)) if path in result.islands]
    retrofitted = models.train(model)
    with models.built_under("mixed_float16"):
        reference = models.compiled(build)
    assert isinstance(reference.optimizer, keras.mixed_precision.LossScaleOptimizer)
    layers = BRIDGE.layers(reference)
    for index in positions:
        layers[index][1]._set_dtype_policy("float32")  # what dtype="float32" at construction does
    assert retrofitted == models.train(reference)


def test_undo_restores_every_attribute_and_float32_results() -> None:
    for build in (models.functional, models.nested, models.subclassed, models.zoo, containers_model):
        model = models.compiled(build)
        layers = [model, *(layer for _, layer in BRIDGE.layers(model))]
        before = [{key: id(value) for key, value in vars(layer).items() if key != "train_function"} for layer in layers]
        policies = [layer.dtype_policy.name for layer in layers]
        x, _ = models.data(model)
        expected = model(x[:4]).numpy()
        result = BRIDGE.retrofit(model, "mixed_float16", float32_output=False)
        changed = any(isinstance(value, AUTOCAST) for layer in layers for value in vars(layer).values())
        assert changed or build is containers_model
        BRIDGE.undo_retrofit(model, result)
        after = [{key: id(value) for key, value in vars(layer).items() if key != "train_function"} for layer in layers]
        for first, second in zip(before, after):
            ignored = {"_dtype_policy", "_thread_local", "_compute_dtype_object", "_inbound_nodes_value", "_called"}
            assert {k: v for k, v in first.items() if k not in ignored} == {
                k: v for k, v in second.items() if k in first and k not in ignored
            }
        assert [layer.dtype_policy.name for layer in layers] == policies
        np.testing.assert_array_equal(model(x[:4]).numpy(), expected)
        models.train(model, epochs=1)
        assert models.computing(BRIDGE.train_graph(model), "float16") == 0
        BRIDGE.undo_retrofit(model, result)  # nothing left to do


def test_a_second_retrofit_changes_nothing_and_keeps_the_trace() -> None:
    for build in (models.functional, models.subclassed, mixing_model):
        model = models.compiled(build)
        first = mixed(model)
        models.train(model, epochs=1)
        function = model.train_function
        second = BRIDGE.retrofit(model, "mixed_float16")
        assert (second.converted, second.islands) == ((), first.islands)
        assert [item.name for item in second.refused] == [item.name for item in first.refused]
        assert model.train_function is function
        BRIDGE.undo_retrofit(model, second)
        assert "mixed_float16" in {layer.dtype_policy.name for _, layer in BRIDGE.layers(model)}


def test_a_half_converted_model_is_completed() -> None:
    model = models.compiled(models.functional)
    BRIDGE.retrofit(model, "mixed_float16", float32_layers=["Dense", "*Conv2D"])
    assert float32_layers_of(model) >= {"conv2d", "dense"}
    result = mixed(model)
    models.train(model, epochs=1)
    assert float32_layers_of(model) == {"dense"}  # the head
    assert set(result.islands) == {"head"}


def float32_layers_of(model: Any) -> set[str]:
    """Kinds of layers with weights that compute in float32."""
    dtypes = BRIDGE.compute_dtypes(model)
    return {type(layer).__name__.lower() for path, layer in BRIDGE.layers(model) if dtypes.get(path) == "float32"}


def test_a_model_built_under_the_policy_is_left_alone() -> None:
    with models.built_under("mixed_float16"):
        model = models.compiled(models.functional)
    before = {key: id(value) for _, layer in BRIDGE.layers(model) for key, value in vars(layer).items()}
    result = BRIDGE.retrofit(model, "mixed_float16", float32_output=False)
    assert {key: id(value) for _, layer in BRIDGE.layers(model) for key, value in vars(layer).items()} == before
    assert result.converted == result.islands == result.refused == ()


def test_islands_by_class_name_path_and_pattern() -> None:
    model = models.compiled(models.zoo)
    patterns = ["GRU", "multi_head*", "*/forward_lstm*", "time_distributed*"]
    result = mixed(model, float32_layers=patterns, float32_output=False)
    # A float32 layer inside a wrapper: the wrapper's own code, which joins both directions, cannot mix precisions.
    assert [item.class_name for item in result.refused] == ["Bidirectional"]
    dtypes = BRIDGE.compute_dtypes(model)
    dtypes.pop(result.refused[0].name)
    for path, dtype in dtypes.items():
        inside = any(word in path for word in ("gru", "multi_head", "/forward_lstm", "time_distributed"))
        assert dtype == ("float32" if inside else "float16"), path
    losses = models.train(model)
    assert losses[-1] < losses[0]


def test_float32_output_follows_what_only_passes_values_on() -> None:
    model = models.compiled(models.multi_output)
    assert set(BRIDGE.output_layers(model)) == {"a", "b", "b_dense"}
    mixed(model)
    assert [output.dtype.name for output in model(models.IMAGES[:2])] == ["float32", "float32"]
    softmaxes = BRIDGE.train_graph(_trained(model)).count("Softmax", "float32")
    assert softmaxes > 0
    assert BRIDGE.train_graph(model).count("Softmax", "float16") == 0


def _trained(model: Any) -> Any:
    models.train(model, epochs=1)
    return model


def test_output_made_by_a_tensorflow_call_keeps_the_layer_before_it_in_float32() -> None:
    inputs = keras.Input((4,))
    hidden = L.Dense(8, name="hidden")(inputs)
    model = keras.Model(inputs, tf.nn.softmax(L.Dense(3, name="logits")(hidden) * 2.0))
    model.compile("sgd", "sparse_categorical_crossentropy")
    result = mixed(model)
    assert result.islands == ("logits",)
    assert model(np.ones((2, 4), "float32")).dtype == "float32"


def test_output_of_a_subclassed_model_whose_code_ends_in_float16_is_cast() -> None:
    class Sum(keras.Model):  # type: ignore[misc,name-defined]
        def call(self, inputs: Any) -> Any:
            return tf.reduce_mean(inputs, axis=1)

    model = Sum()
    model(np.ones((2, 4), "float32"))
    BRIDGE.retrofit(model, "mixed_float16")
    assert model(np.ones((2, 4), "float32")).dtype == "float32"


class Mixing(L.Layer):  # type: ignore[misc,name-defined]
    """Multiplies its input by a float32 constant, which float16 inputs make an error."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.inner = L.Dense(6)

    def call(self, inputs: Any) -> Any:
        """A product of two tensors that have to be of one dtype."""
        return self.inner(inputs) * tf.constant([0.5], dtype=tf.float32)


def mixing_model() -> Any:
    """A model with one mixing layer between others."""
    inputs = keras.Input((8, 8, 3))
    x = L.Flatten()(L.Conv2D(4, 3)(inputs))
    x = Mixing(name="mixing")(x)
    return keras.Model(inputs, L.Dense(models.CLASSES, activation="softmax", name="head")(L.Dense(8, name="last")(x)))


class Containers(L.Layer):  # type: ignore[misc,name-defined]
    """Variables in a list, a dict, a tuple, an attribute and a module that is no layer."""

    def build(self, shape: Any) -> None:
        """Six scalars."""
        make = lambda name: self.add_weight(name, (), initializer="ones")  # noqa: E731
        self.listed = [make("a"), make("b")]
        self.named = {"c": make("c")}
        self.fixed = (make("d"), "text")
        self.single = make("e")
        self.module = tf.Module()
        self.module.scale = tf.Variable(1.0)

    def call(self, inputs: Any) -> Any:
        """The product of all of them with the input."""
        scales = [*self.listed, self.named["c"], self.fixed[0], self.single, self.module.scale]
        for scale in scales:
            inputs = inputs * scale
        return inputs


def containers_model() -> Any:
    """A model around it."""
    inputs = keras.Input((8, 8, 3))
    x = Containers(name="containers")(L.Flatten()(inputs))
    return keras.Model(inputs, L.Dense(models.CLASSES, activation="softmax", name="head")(L.Dense(8)(x)))


def test_variables_in_containers_and_modules_are_cast_and_still_saved(tmp_path: Any) -> None:
    model = models.compiled(containers_model)
    result = mixed(model)
    assert result.refused == ()
    assert "containers" in result.converted
    losses = models.train(model)
    assert losses[-1] < losses[0]
    assert BRIDGE.train_graph(model).count("Mul", "float16") >= 6
    assert len(model.trainable_variables) == 10
    path = str(tmp_path / "weights")
    model.save_weights(path)
    fresh = models.compiled(containers_model)
    fresh.load_weights(path)
    for first, second in zip(model.weights, fresh.weights):
        np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_a_layer_that_mixes_dtypes_is_refused_alone_with_the_error_text(tmp_path: Any) -> None:
    model = models.compiled(mixing_model)
    result = mixed(model)
    assert [(item.name, item.class_name) for item in result.refused] == [("mixing", "Mixing")]
    assert "float32" in result.refused[0].reason
    assert "half" in result.refused[0].reason or "float16" in result.refused[0].reason
    dtypes = BRIDGE.compute_dtypes(model)
    assert dtypes["mixing"] == "float32"
    assert dtypes["last"] == "float16"
    assert next(dtype for path, dtype in dtypes.items() if path.startswith("mixing/")) == "float16"
    losses = models.train(model)
    assert losses[-1] < losses[0]
    for name in ("m.keras", "saved_model"):
        model.save(str(tmp_path / name))
        loaded = keras.models.load_model(str(tmp_path / name), custom_objects={"Mixing": Mixing})
        assert loaded.get_layer("last").compute_dtype == "float16"
        np.testing.assert_allclose(loaded(models.IMAGES[:4]), model(models.IMAGES[:4]), atol=1e-2)


def test_the_code_of_a_model_that_mixes_dtypes_is_refused_and_its_layers_are_not() -> None:
    class Model(keras.Model):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.first, self.head = L.Flatten(), L.Dense(8), L.Dense(models.CLASSES, activation="softmax")

        def call(self, inputs: Any) -> Any:
            hidden = self.first(self.flat(inputs))
            return self.head(hidden + tf.ones_like(hidden, dtype=tf.float32))

    def build() -> Any:
        model = Model()
        model(models.IMAGES[:1])
        return model

    model = models.compiled(build)
    result = mixed(model)
    assert [item.class_name for item in result.refused] == ["Model"]
    losses = models.train(model)
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0
    assert losses[-1] < losses[0]


def test_operations_that_would_meet_two_dtypes_get_float32(tmp_path: Any) -> None:
    inputs = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, padding="same", name="conv")(inputs)
    y = L.BatchNormalization(name="norm")(x)
    head = L.Dense(models.CLASSES, activation="softmax", name="head")
    model = keras.Model(inputs, head(L.Flatten()(tf.add(x, y))))
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
    result = mixed(model, float32_layers=["BatchNormalization"])
    assert "norm" in result.islands
    assert [item.class_name for item in result.refused] == ["TFOpLambda"]
    losses = models.train(model)
    assert BRIDGE.train_graph(model).count("Conv2D", "float16") > 0
    assert losses[-1] < losses[0]
    # A config has no place for the casts in between, so the saved model is one of float32, with all its state.
    assert "SavedModel" in result.refused[0].reason
    path = str(tmp_path / "m.keras")
    model.save(path)
    loaded = keras.models.load_model(path)
    assert {layer.dtype_policy.name for layer in loaded.layers} == {"float32"}
    np.testing.assert_allclose(loaded(models.IMAGES[:4]), model(models.IMAGES[:4]), atol=1e-2)
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)
    BRIDGE.undo_retrofit(model, result)
    assert model.get_layer("conv").get_config()["dtype"] == "float32"
    assert "get_config" not in vars(model.get_layer("conv"))


def test_a_script_error_that_has_nothing_to_do_with_precision_refuses_only_custom_layers() -> None:
    class Broken(L.Layer):  # type: ignore[misc,name-defined]
        broken = False

        def call(self, inputs: Any) -> Any:
            if self.broken:
                raise RuntimeError("no such file")
            return inputs

    inputs = keras.Input((4,))
    broken = Broken(name="broken")
    model = keras.Model(inputs, L.Dense(2, name="head")(broken(L.Dense(8, name="dense")(inputs))))
    broken.broken = True
    result = BRIDGE.retrofit(model, "mixed_float16")
    assert result.converted == ("dense",)
    assert [item.name for item in result.refused] == ["broken"]
    assert "no such file" in result.refused[0].reason


def test_layers_that_cannot_compute_in_float16_are_refused_with_a_reason() -> None:
    pixels, words = keras.Input((4, 4, 1), name="pixels"), keras.Input((1,), dtype="string", name="words")
    x = L.Dense(4, name="wide", dtype="float64")(L.Flatten()(L.Rescaling(1 / 255, name="rescaling")(pixels)))
    y = L.Embedding(5, 4, name="embedding")(L.StringLookup(vocabulary=["a", "b"], name="lookup")(words))
    z = L.Concatenate(name="join")([x, L.Flatten()(y)])
    model = keras.Model([pixels, words], L.Dense(2, name="head")(L.Dense(4, name="hidden")(z)))
    result = BRIDGE.retrofit(model, "mixed_float16")
    reasons = {item.name: item.reason for item in result.refused}
    assert set(reasons) == {"wide", "rescaling", "lookup"}
    assert "float64" in reasons["wide"]
    assert "strings" in reasons["lookup"]
    assert "float32" in reasons["rescaling"]
    dtypes = BRIDGE.compute_dtypes(model)
    assert (dtypes["wide"], dtypes["rescaling"], dtypes["hidden"]) == ("float64", "float32", "float16")
    seen = []
    model.get_layer("rescaling").call = _spy(model.get_layer("rescaling").call, seen)
    model([np.ones((2, 4, 4, 1), "float32"), tf.constant([["a"], ["b"]])])
    assert seen == ["float32"]


def _spy(call: Any, seen: list[str]) -> Any:
    def wrapper(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(inputs.dtype.name)
        return call(inputs, *args, **kwargs)

    return wrapper


@pytest.mark.parametrize("distributed", [False, True])
def test_an_unbuilt_model_is_settled_at_its_first_call(distributed: bool) -> None:
    class Late(models.Subclassed):
        def __init__(self) -> None:
            super().__init__()
            self.mixing = Mixing(name="mixing")

        def call(self, inputs: Any, training: bool = False) -> Any:
            return super().call(tf.reshape(self.mixing(L.Flatten()(inputs)), (-1, 1, 2, 3)), training)

    class Short(Late):
        def __init__(self) -> None:
            super().__init__()
            self.conv = L.Conv2D(8, 1)

    strategy = tf.distribute.MirroredStrategy(["CPU:0"]) if distributed else tf.distribute.get_strategy()
    with strategy.scope():
        model = models.compiled(Short)
    result = mixed(model)
    assert "conv2d" in " ".join(result.converted)
    losses = models.train(model)
    dtypes = BRIDGE.compute_dtypes(model)
    assert dtypes["mixing"] == "float32"
    assert model.logits.compute_dtype == "float32"  # found at the first call
    assert model.conv.compute_dtype == "float16"
    assert isinstance(model.conv.kernel, tf.Variable)
    assert model.conv.kernel.dtype == tf.float32
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0
    assert losses[-1] < losses[0]
    assert model(models.IMAGES[:1]).dtype == "float32"


@pytest.mark.parametrize("built", [True, False])
def test_a_subclassed_model_saved_as_a_saved_model_computes_the_same_when_loaded(built: bool, tmp_path: Any) -> None:
    model = models.compiled(models.subclassed if built else models.Subclassed)
    mixed(model)
    models.train(model, epochs=1)
    model.save(str(tmp_path / "saved"))
    loaded = keras.models.load_model(str(tmp_path / "saved"))
    result = loaded(models.IMAGES[:4])
    assert result.dtype == "float32"
    np.testing.assert_allclose(result, model(models.IMAGES[:4]), atol=1e-2)


def test_an_eager_model() -> None:
    model = models.compiled(models.Subclassed, run_eagerly=True)
    mixed(model)
    losses = models.train(model)
    assert losses[-1] < losses[0]
    assert model.logits.compute_dtype == "float32"
    assert model.conv(models.IMAGES[:1]).dtype == "float16"


def test_a_sequential_without_an_input_shape() -> None:
    model = models.compiled(lambda: keras.Sequential([L.Flatten(), L.Dense(8), L.Dense(models.CLASSES), L.Softmax()]))
    mixed(model)
    losses = models.train(model)
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0
    assert model(models.IMAGES[:1]).dtype == "float32"
    assert losses[-1] < losses[0]


def test_a_model_that_is_never_called_itself() -> None:
    class Pair(keras.Model):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.maker = keras.Sequential([L.Dense(8, input_shape=(4,)), L.Dense(6, name="made")])
            self.judge = models_subclassed_judge()

        def train_step(self, batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.judge(self.maker(batch)) ** 2)
                scaled = self.optimizer.get_scaled_loss(loss)
            gradients = self.optimizer.get_unscaled_gradients(tape.gradient(scaled, self.trainable_variables))
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    model = Pair()
    model.compile(keras.optimizers.Adam(1e-2))
    result = mixed(model)
    assert any(path.endswith("made") for path in result.islands)
    batches = np.ones((32, 4), "float32")
    history = model.fit(batches, batch_size=8, epochs=2, verbose=0)
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert BRIDGE.examples_seen(model) is None


def models_subclassed_judge() -> Any:
    """A small subclassed model that was called."""

    class Judge(keras.Model):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = L.Dense(8), L.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.two(self.one(inputs))

    judge = Judge()
    judge(np.ones((1, 6), "float32"))
    return judge


def test_control_flow_in_a_refused_layer_is_still_converted_by_autograph() -> None:
    class Branch(Mixing):
        def call(self, inputs: Any) -> Any:
            if tf.reduce_sum(inputs) > 0:  # a tensor: only AutoGraph makes this work in a graph
                inputs = inputs * tf.constant([2.0])
            return inputs

    inputs = keras.Input((8, 8, 3))
    x = Branch(name="branch")(L.Dense(8)(L.Flatten()(inputs)))
    model = keras.Model(inputs, L.Dense(models.CLASSES, activation="softmax")(x))
    model.compile("sgd", "sparse_categorical_crossentropy")
    result = mixed(model)
    assert [item.name for item in result.refused] == ["branch"]
    models.train(model, epochs=1)


def test_a_trial_run_leaves_random_numbers_alone() -> None:
    def build() -> Any:
        inputs = keras.Input((8, 8, 3))
        x = L.Lambda(lambda value: value * 2.0)(L.Dropout(0.5)(L.Flatten()(inputs)))
        return keras.Model(inputs, L.Dense(models.CLASSES, activation="softmax", name="head")(L.Dense(8)(x)))

    model = models.compiled(build)
    result = mixed(model)
    assert result.refused == ()
    retrofitted = models.train(model)
    with models.built_under("mixed_float16"):
        reference = models.compiled(build)
    reference.get_layer("head")._set_dtype_policy("float32")
    assert retrofitted == models.train(reference)


def test_stateful_recurrent_layers_keep_their_state() -> None:
    model = keras.Sequential([L.LSTM(6, stateful=True, batch_input_shape=(4, 3, 5)), L.Dense(2, name="head")])
    model.compile("sgd", "mse")
    assert mixed(model).refused == ()
    model.fit(np.ones((8, 3, 5), "float32"), np.ones((8, 2), "float32"), batch_size=4, verbose=0, shuffle=False)
    assert float(np.abs(model.layers[0].states[0].numpy()).sum()) > 0
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(BridgeError, match="mixed_float16"):
        BRIDGE.retrofit(models.functional(), "float16")


def test_paths_are_unique_and_reach_cells_and_inner_layers() -> None:
    layers = BRIDGE.layers(models.zoo())
    paths = [path for path, _ in layers]
    assert len(set(paths)) == len(paths)
    assert len({id(layer) for _, layer in layers}) == len(layers)
    classes = {type(layer).__name__ for _, layer in layers}
    assert {"LSTMCell", "GRUCell", "SimpleRNNCell", "EinsumDense", "Dense", "InputLayer"} <= classes
