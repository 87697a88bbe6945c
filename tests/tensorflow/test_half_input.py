"""Features that are cast to float16 on the host: the same results to the last bit, or left with the reason."""

from __future__ import annotations

import pathlib
from typing import Any, Callable

import numpy as np
import pytest

from tests.stack import STACK, keras, tf
from tfvolta.bridge import bridge_for
from tfvolta.config import load_config
from tfvolta.data.half import with_half
from tfvolta.errors import NoEffectError
from tfvolta.evidence.store import read
from tfvolta.outcome import Status
from tfvolta.script.run import ScriptRun
from tfvolta.session import Origin, Session

layers = keras.layers
GENERATOR = np.random.default_rng(0)
# Values that a half cannot hold, ties, subnormals of a half and of a float, and both ends.
HARD = [1 + 2**-11, 1 + 3 * 2**-11, 2**-14 - 2**-25, 2**-24, 2**-25, 1e-40, 65504.0, 65519.9, -0.0, 3.1415926]
IMAGES = GENERATOR.standard_normal((8, 6, 6, 3)).astype("float32")
IMAGES.reshape(8, -1)[:, : len(HARD)] = np.float32(HARD) / np.float32(1024)
LABELS = GENERATOR.integers(0, 3, 8).astype("int32")
WEIGHTS = np.linspace(0.1, 1.3, 8).astype("float32")


@pytest.fixture(autouse=True)
def policy() -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy("float32")


def image_model(first: Callable[[], Any] = lambda: layers.Conv2D(4, 3)) -> Any:
    inputs = keras.Input((6, 6, 3), name="image")
    x = layers.GlobalAveragePooling2D()(first()(inputs))
    return keras.Model(inputs, layers.Dense(3, dtype="float32")(x))


def reasons(model: Any) -> tuple[str, ...]:
    found = bridge_for(model).half_inputs(model)
    return (found.why,) if found.why else found.reasons


def test_a_cast_on_the_host_rounds_as_one_in_the_step_does() -> None:
    values = np.float32([*HARD, np.inf, -np.inf, np.nan])
    data = tf.data.Dataset.from_tensors((values, values))
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
    arguments, left = with_half({"x": data}, bridge_for(model).half_inputs(model))
    ((features, labels),) = arguments["x"]
    step = tf.function(lambda x: tf.cast(x, tf.float16), jit_compile=True)(values).numpy()
    assert left == "" and labels.dtype == tf.float32
    assert features.numpy().tobytes() == values.astype("float16").tobytes()
    np.testing.assert_array_equal(features.numpy(), step)


SCRIPT = """
import numpy as np
from tests.tensorflow import test_half_input as here
weights, losses = here.fitted({dtype!r})
np.savez({made!r}, losses, *weights)
"""


def fitted(dtype: Any) -> tuple[list[Any], list[float]]:
    """Weights and losses of two epochs; the line of a script without a word of this package."""
    keras.utils.set_random_seed(3)
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS, WEIGHTS)).batch(4)
    model = image_model(lambda: layers.Conv2D(4, 3, dtype=dtype))
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(True), jit_compile=False)
    history = model.fit(data, epochs=2, verbose=0)
    return model.get_weights(), history.history["loss"]


def run(folder: pathlib.Path, half: Any, policy: str = "mixed_float16", dtype: Any = None) -> tuple[list[Any], Any]:
    """What a script trained under tfvolta ends with, and how the setting ended."""
    folder.mkdir()
    script, made = folder / "train.py", folder / "made.npz"
    script.write_text(SCRIPT.format(made=str(made), dtype=dtype), encoding="utf-8")
    config = load_config(
        input={"half": half}, mixed_precision={"policy": policy}, run={"directory": str(folder / "runs")}
    )
    session = Session(config, stack=STACK, origin=Origin(script=str(script)))
    try:
        ScriptRun(session).run(str(script), [])
    finally:
        session.close()
    (evidence,) = (folder / "runs").iterdir()
    with np.load(made) as arrays:
        return [arrays[name] for name in arrays.files], read(evidence).outcomes.get("half_input")


def test_losses_and_weights_are_equal_to_the_last_bit(tmp_path: pathlib.Path) -> None:
    plain, nothing = run(tmp_path / "plain", None)
    half, outcome = run(tmp_path / "half", True)
    assert nothing is None and outcome.status is Status.APPLIED and outcome.observed == {"float16_features": 1}
    assert len(plain) == len(half) == 5
    assert [each.tobytes() for each in plain] == [each.tobytes() for each in half]


def test_a_compiled_step_ends_with_the_same_bits() -> None:
    ends = []
    for half in (False, True):
        keras.utils.set_random_seed(3)
        model = image_model(layers.BatchNormalization)  # takes its float16 input back to float32
        data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS, WEIGHTS)).batch(4)
        if half:
            data = with_half({"x": data}, bridge_for(model).half_inputs(model))[0]["x"]
            assert data.element_spec[0].dtype == tf.float16
        model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(True), jit_compile=True)
        model.fit(data, epochs=2, verbose=0)
        ends.append([each.tobytes() for each in model.get_weights()])
    assert ends[0] == ends[1]


def test_where_no_layer_casts_auto_says_so_and_true_is_refused(tmp_path: pathlib.Path) -> None:
    _, outcome = run(tmp_path / "auto", "auto", dtype="float32")
    assert outcome.status is Status.NOT_APPLICABLE and "computes in float32" in outcome.message
    with pytest.raises(NoEffectError, match="computes in float32"):
        run(tmp_path / "true", True, dtype="float32")


@pytest.mark.parametrize(
    ("first", "left"),
    [
        (lambda: layers.Conv2D(4, 3), ""),
        (lambda: layers.ZeroPadding2D(1), ""),
        (lambda: keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(4, 1)]), ""),
        (lambda: layers.Conv2D(4, 3, dtype="float32"), "computes in float32"),
        (lambda: layers.Rescaling(1 / 255.0), "looks at its values|does not cast it"),
        (lambda: layers.Rescaling(1 / 255.0, dtype="float32"), "computes in float32|does not cast it"),
        (lambda: layers.Activation("relu", autocast=False), "does not cast it"),
        (lambda: lambda x: x * 1.0001, "does not cast it"),
        (lambda: keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(4, 1, dtype="float32")]), "in float32"),
    ],
)
def test_each_layer_that_takes_an_input_must_cast_it(first: Callable[[], Any], left: str) -> None:
    (found,) = reasons(image_model(first))
    assert found == "" if left == "" else any(part in found for part in left.split("|")), found


def test_several_inputs_are_told_apart() -> None:
    image, mask, tokens = keras.Input((4,), name="a"), keras.Input((4,), name="b"), keras.Input((4,), dtype="int32")
    words = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4)(tokens))
    x = layers.Add()([layers.Dense(4)(image), layers.Dense(4, dtype="float32")(mask), words])
    found = reasons(keras.Model([image, mask, tokens], [x, mask]))
    assert found[0] == "" and "output" in found[1] and "takes it as int32" in found[2]


def test_a_models_own_code_may_look_at_the_data() -> None:
    class Looks(keras.Model):  # type: ignore[misc,name-defined]
        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    class Own(keras.Model):  # type: ignore[misc,name-defined]
        def call(self, x: Any) -> Any:
            return x

    inputs = keras.Input((4,))
    assert "train_step is the script's own" in reasons(Looks(inputs, layers.Dense(1)(inputs)))[0]
    assert "call is the script's own" in reasons(Own())[0]
    model = keras.Model(inputs, layers.Dense(1)(inputs))
    assert reasons(model) == ("",)
    model.compute_loss = lambda *args, **kwargs: 0.0
    assert "compute_loss is the script's own" in reasons(model)[0]
    assert "no graph of layers" in reasons(keras.Sequential([layers.Dense(1)]))[0]


def test_data_that_do_not_fit_the_inputs_stay() -> None:
    model = image_model()
    known = bridge_for(model).half_inputs(model)

    def left(data: Any) -> str:
        arguments, why = with_half({"x": data}, known)
        assert arguments["x"] is data
        return why

    rows = tf.data.Dataset.from_tensors
    assert "not a tf.data.Dataset" in left(IMAGES)
    assert "float64, not float32" in left(rows((IMAGES.astype("float64"), LABELS)))
    assert "2 parts for 1 inputs" in left(rows(((IMAGES, IMAGES), LABELS)))
    assert "keys" in left(rows(({"other": IMAGES}, LABELS)))
    there = rows((IMAGES, LABELS)).apply(tf.data.experimental.copy_to_device("/CPU:0"))
    assert "copy to a device" in left(there)
    cast, _ = with_half({"x": rows(({"image": IMAGES}, LABELS, WEIGHTS))}, known)
    features, labels, weights = cast["x"].element_spec
    assert (features["image"].dtype, labels.dtype, weights.dtype) == (tf.float16, tf.int32, tf.float32)
