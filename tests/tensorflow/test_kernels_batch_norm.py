"""Fused batch normalisation on Keras 3 against Keras's own: outputs, gradients, moving statistics, saving, undoing."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any, Callable, Iterator

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if not KERAS3:
    pytest.skip("Keras 2 normalises with the fused operation by itself", allow_module_level=True)

from tests.tensorflow.kernel_cases import BRIDGE, far, norm_passes, pair
from tfvolta.bridge.kernel_records import BATCH_NORM

layers = keras.layers
RANDOM = np.random.default_rng(3)
SHAPES = {2: (24, 5), 3: (4, 6, 5), 4: (4, 6, 7, 5), 5: (3, 2, 4, 3, 5)}
TOLERANCE = {"float32": 1e-5, "mixed_float16": 1e-3, "mixed_bfloat16": 8e-3}


@pytest.fixture(autouse=True)
def _plain_policy() -> Iterator[None]:
    keras.utils.set_random_seed(5)
    yield
    BRIDGE.set_global_policy("float32")


def compare(shape: tuple[int, ...], policy: str, training: bool, **arguments: Any) -> None:
    plain, fused = pair(shape, policy, **arguments)
    x = (RANDOM.normal(2.0, 3.0, shape)).astype("float32")
    seed = RANDOM.normal(size=shape).astype("float32")
    wanted, found = norm_passes(plain, x, seed, training), norm_passes(fused, x, seed, training)
    assert wanted["fused"] == []
    assert found["fused"] == [{"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}.get(policy, "float32")]
    assert found["output"].dtype == wanted["output"].dtype
    tolerance = TOLERANCE[policy]
    assert far(found["output"], wanted["output"]) < tolerance
    assert len(found["gradients"]) == len(wanted["gradients"])
    for mine, keras_own in zip(found["gradients"], wanted["gradients"]):
        assert far(mine, keras_own) < tolerance
    for mine, keras_own in zip(found["moved"], wanted["moved"]):
        assert far(mine, keras_own) < 1e-5  # float32 under every policy


@pytest.mark.parametrize("policy", sorted(TOLERANCE))
@pytest.mark.parametrize("training", [True, False])
def test_images_equal_keras(policy: str, training: bool) -> None:
    compare(SHAPES[4], policy, training, momentum=0.9, epsilon=0.01)


@pytest.mark.parametrize("rank", [2, 3, 5])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_other_ranks_equal_keras(rank: int, policy: str) -> None:
    compare(SHAPES[rank], policy, training=True)


@pytest.mark.parametrize("absent", [{"scale": False}, {"center": False}, {"scale": False, "center": False}])
@pytest.mark.parametrize("training", [True, False])
def test_without_scale_or_center(absent: dict[str, bool], training: bool) -> None:
    compare(SHAPES[4], "float32", training, **absent)


def test_the_variance_that_is_kept_is_the_biased_one() -> None:
    _, fused = pair((2, 1), momentum=0.0)  # two values: Bessel's correction would double it
    fused(np.array([[1.0], [3.0]], "float32"), training=True)
    mean, variance = (weight.numpy() for weight in fused.layers[-1].non_trainable_variables)
    assert (mean[0], variance[0]) == (2.0, 1.0)


def test_one_value_does_not_vary() -> None:
    _, fused = pair((1, 3), momentum=0.0)
    y = fused(np.array([[1.0, 2.0, 3.0]], "float32"), training=True)
    assert np.isfinite(y.numpy()).all()
    assert fused.layers[-1].moving_variance.numpy().tolist() == [0.0, 0.0, 0.0]


def kept(**arguments: Any) -> str:
    """Why one layer stays as it is."""
    shape = arguments.pop("shape", (6, 7, 5))
    model = keras.Sequential([keras.Input(shape), layers.BatchNormalization(name="norm", **arguments)])
    change = BRIDGE.install_kernel(model, BATCH_NORM)
    assert not change.served and [layer.name for layer in change.left] == ["norm"]
    return change.left[0].reason


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"synchronized": True}, "synchronized=True"),
        ({"renorm": True}, "renorm=True"),
        ({"epsilon": 1e-6}, "epsilon 1e-06"),
        ({"axis": 2}, "axis 2"),
        ({"axis": 1}, "GPUs only"),
        ({"dtype": "float64"}, "float64"),
    ],
)
def test_what_cannot_be_fused_stays_with_the_reason(arguments: dict[str, Any], word: str) -> None:
    assert word in kept(**arguments)


def test_a_class_with_code_of_its_own_stays() -> None:
    class Own(layers.BatchNormalization):  # type: ignore[misc, name-defined]
        def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            return super().call(inputs, training=training, mask=mask) * 2.0

    model = keras.Sequential([keras.Input((4,)), Own()])
    before = model(np.ones((2, 4), "float32")).numpy()
    change = BRIDGE.install_kernel(model, BATCH_NORM)
    assert not change.served and "code of its own" in change.left[0].reason
    np.testing.assert_array_equal(model(np.ones((2, 4), "float32")).numpy(), before)


def test_a_mask_and_float64_inputs_run_keras_and_say_so() -> None:
    plain, fused = pair((4, 6, 5))
    x = RANDOM.normal(size=(4, 6, 5)).astype("float32")
    mask = tf.constant(RANDOM.integers(0, 2, (4, 6)), tf.bool)
    for model in (plain, fused):
        model.layers[-1](x, training=True, mask=mask)
    for mine, keras_own in zip(fused.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(mine, keras_own, rtol=1e-6)
    assert "mask" in BRIDGE.kernel_fallbacks(fused, BATCH_NORM)["norm"]


def network() -> Any:
    """A small network with normalisation after a convolution, inside a nested model, and frozen."""
    keras.utils.set_random_seed(1)
    frozen = layers.BatchNormalization(name="frozen")
    frozen.trainable = False
    inner = keras.Sequential([keras.Input((4, 4, 6)), layers.BatchNormalization(name="norm")], name="inner")
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(6, 3, strides=2, padding="same"),
            frozen,
            inner,
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(4),
            layers.BatchNormalization(name="last"),
            layers.Dense(1, dtype="float32"),
        ],
        name="network",
    )


def fused_in_a_step(model: Any, dtype: Any = None) -> int:
    graph = BRIDGE.train_graph(model)
    return graph.count("FusedBatchNormV3", dtype) // graph.traces


X = RANDOM.normal(1.0, 2.0, (32, 8, 8, 3)).astype("float32")
Y = RANDOM.normal(size=(32, 1)).astype("float32")


def trained(prepare: Callable[[Any], Any], policy: str = "float32", **arguments: Any) -> tuple[Any, list[float]]:
    BRIDGE.set_global_policy(policy)
    model = network()
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", **arguments)
    prepare(model)
    losses = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    return model, losses


def fuse(model: Any) -> Any:
    return BRIDGE.install_kernel(model, BATCH_NORM)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_fit_is_the_same_and_so_is_what_follows(policy: str, tmp_path: Any) -> None:
    plain, wanted = trained(lambda model: None, policy)
    fused, found = trained(fuse, policy)
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if policy == "float32" else 2e-2)
    assert fused_in_a_step(fused, "float32" if policy == "float32" else "float16") == 3
    assert fused_in_a_step(plain) == 0
    for mine, keras_own in zip(fused.layers[1].get_weights(), network().layers[1].get_weights()):
        np.testing.assert_array_equal(mine, keras_own)  # frozen: neither trained nor moved
    file = str(tmp_path / "model.keras")
    fused.save(file)
    loaded = keras.models.load_model(file)
    for mine, keras_own in ((loaded.layers[1], plain.layers[1]), (loaded.get_layer("last"), plain.get_layer("last"))):
        assert mine.get_config() == keras_own.get_config()
    assert "call" not in loaded.layers[1].__dict__
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if policy == "float32" else {"rtol": 1e-2, "atol": 1e-2}
    np.testing.assert_allclose(loaded.predict(X, verbose=0), fused.predict(X, verbose=0), **tolerance)
    np.testing.assert_allclose(loaded.evaluate(X, Y, verbose=0), fused.evaluate(X, Y, verbose=0), **tolerance)


def test_undone_it_is_keras_again() -> None:
    model = network()
    model.compile("sgd", "mse")
    change = fuse(model)
    assert change.served == ("frozen", "inner/norm", "last")
    assert fuse(model).undo_token == ()  # nothing new, so no second trace
    BRIDGE.undo_kernel(model, change)
    assert all("call" not in layer.__dict__ for _, layer in BRIDGE.layers(model))
    model.fit(X, Y, batch_size=8, verbose=0)
    assert fused_in_a_step(model) == 0


@pytest.mark.parametrize("always", [False, True])
def test_a_step_that_xla_compiles_is_left_to_xla_unless_asked(always: bool) -> None:
    model = network()
    model.compile("sgd", "mse", jit_compile=True)
    BRIDGE.install_kernel(model, BATCH_NORM, always)
    model.fit(X, Y, batch_size=16, verbose=0)
    assert fused_in_a_step(model) == (3 if always else 0)
    assert bool(BRIDGE.kernel_fallbacks(model, BATCH_NORM)) is not always
    BRIDGE.set_jit(model, False)  # as where XLA refuses the step that was tried
    model.fit(X, Y, batch_size=16, verbose=0)
    assert fused_in_a_step(model) == 3 and not BRIDGE.kernel_fallbacks(model, BATCH_NORM)


def test_two_replicas_train_and_move_the_same() -> None:
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.tensorflow.kernel_replicas"], cwd=root, capture_output=True, text=True
    )
    lines = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-2000:]
    plain, fused = json.loads(lines[0])
    assert (plain["fused"], fused["fused"]) == (0, 4)  # two layers on each of two replicas
    np.testing.assert_allclose(fused["losses"], plain["losses"], rtol=1e-5)
    for mine, keras_own in zip(fused["weights"], plain["weights"]):
        np.testing.assert_allclose(mine, keras_own, rtol=1e-4, atol=1e-6)
    assert fused["spread"] == pytest.approx(plain["spread"], rel=1e-4)  # each replica keeps statistics of its own
