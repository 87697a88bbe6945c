"""Retrofitting Keras 2 models that were never called, and models that are never called themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tests.tensorflow.bridge_keras2_models import Mixing, mixed

L = keras.layers
BRIDGE = models.bridge()


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
