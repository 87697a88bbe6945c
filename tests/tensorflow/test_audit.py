"""Findings about models: seen on the model itself, in a fit, in its evidence and in its report."""

from __future__ import annotations

import io
import warnings
from typing import Any, Callable, Iterator

import numpy as np
import pytest
from rich.console import Console

from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow.callbacks_models import rows
from tfvolta import build_callbacks, load_config, precision
from tfvolta.audit import Finding, audit_model
from tfvolta.bridge import bridge_for_stack
from tfvolta.callbacks import XlaJit
from tfvolta.errors import AuditWarning, BridgeError
from tfvolta.evidence.reading import latest, read
from tfvolta.report.terminal import print_report

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)


@pytest.fixture(autouse=True)
def _mixed_float16() -> Iterator[None]:
    BRIDGE.set_global_policy("mixed_float16")
    yield
    BRIDGE.set_global_policy("float32")


def found(model: Any) -> dict[str, Finding]:
    return {finding.rule: finding for finding in audit_model(model)}


def hidden() -> tuple[Any, Any]:
    inputs = keras.Input((8,))
    return inputs, layers.Dense(4, name="hidden")(inputs)


def several_outputs() -> Any:
    inputs, x = hidden()
    sound = layers.Activation("sigmoid", dtype="float32", name="sound")(layers.Dense(1)(x))
    kind = layers.Dense(3, activation="softmax", name="kind")(x)
    return keras.Model(inputs, [kind, sound, layers.Dense(1, name="size")(x)])


def stack() -> Any:
    return keras.Sequential([keras.Input((8,)), layers.Dense(4), layers.Dense(1, activation="sigmoid", name="out")])


def nested() -> Any:
    inputs, x = hidden()
    head = keras.Sequential([keras.Input((4,)), layers.Dense(1, name="out")], name="head")
    return keras.Model(inputs, head(x))


def recurrent() -> Any:
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.LSTM(2, name="memory")(layers.Reshape((4, 2))(inputs)))


def arithmetic() -> Any:
    inputs, x = hidden()
    return keras.Model(inputs, layers.Dense(1, name="left")(x) + layers.Dense(1, name="right")(x))


def own_function() -> Any:
    inputs, x = hidden()
    return keras.Model(inputs, layers.Lambda(lambda item: item * 2, name="twice")(x))


class Own(keras.Model):  # type: ignore[misc]
    def __init__(self, dtype_of_result: Any = None) -> None:
        super().__init__()
        self.hidden, self.out = layers.Dense(4, name="hidden"), layers.Dense(1, name="out")
        self.result = dtype_of_result

    def call(self, inputs: Any) -> Any:
        result = self.out(self.hidden(inputs))
        return result if self.result is None else tf.cast(result, self.result)


def own(dtype_of_result: Any = None) -> Any:
    model = Own(dtype_of_result)
    model(rows(2)[0])
    return model


HALF: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "several outputs": (several_outputs, ("kind", "size")),
    "sequential": (stack, ("out",)),
    "nested": (nested, ("head/out",)),
    "recurrent": (recurrent, ("memory",)),
    "arithmetic at the end": (arithmetic, ("left", "right")),
    "own function": (own_function, ("twice",)),
    "own call": (own, ("out",)),
    "own call that casts": (lambda: own("float16"), ("out",)),
}


@pytest.mark.parametrize("kind", HALF)
def test_half_precision_outputs_are_found_by_name_and_mended(kind: str) -> None:
    make, names = HALF[kind]
    model = make()
    x, _ = rows(4)
    hidden_dtypes = {path: dtype for path, dtype in BRIDGE.compute_dtypes(model).items() if "hidden" in path}
    finding = found(model)["float16_outputs"]
    assert finding.layers == names and "float16" in finding.what and "float32_outputs" in finding.fix
    assert "float16" in {result.dtype.name for result in tf.nest.flatten(model(x))}
    before = [weight.copy() for weight in model.get_weights()]
    assert precision.float32_outputs(model) == names
    assert {result.dtype.name for result in tf.nest.flatten(model(x))} == {"float32"}
    assert found(model) == {} and precision.float32_outputs(model) == ()
    assert {path: BRIDGE.compute_dtypes(model)[path] for path in hidden_dtypes} == hidden_dtypes
    assert all((old == new).all() for old, new in zip(before, model.get_weights()))
    if kind != "several outputs":
        model.compile("sgd", "mse", jit_compile=False)
        assert np.isfinite(model.fit(x, np.zeros(np.shape(model(x)), "f"), verbose=0).history["loss"]).all()


def sound_activation() -> Any:
    inputs, x = hidden()
    return keras.Model(inputs, layers.Activation("softmax", dtype="float32")(layers.Dense(3)(x)))


def cast_in_a_function() -> Any:
    inputs, x = hidden()
    return keras.Model(inputs, layers.Lambda(lambda item: tf.cast(item, "float32"))(x))


def float32_norm() -> Any:
    inputs, x = hidden()
    return keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.LayerNormalization(dtype="float32")(x)))


def float32_throughout() -> Any:
    BRIDGE.set_global_policy("float32")
    return stack()


SOUND = [sound_activation, cast_in_a_function, float32_norm, float32_throughout, lambda: own("float32")]


@pytest.mark.parametrize("make", SOUND)
def test_sound_models_have_no_findings(make: Callable[[], Any]) -> None:
    assert found(make()) == {}


def test_bfloat16_outputs_are_found_too() -> None:
    BRIDGE.set_global_policy("mixed_bfloat16")
    model = stack()
    assert "bfloat16" in found(model)["float16_outputs"].what
    assert precision.float32_outputs(model) == ("out",) and found(model) == {}


def test_float32_islands_survive_the_mending() -> None:
    inputs, x = hidden()
    x = layers.Dense(4, dtype="float32", name="island")(x)
    model = keras.Model(inputs, layers.Dense(1, name="out")(x))
    precision.float32_outputs(model)
    dtypes = BRIDGE.compute_dtypes(model)
    assert (dtypes["hidden"], dtypes["island"], dtypes["out"]) == ("float16", "float32", "float32")


def test_a_model_that_was_never_called_says_so() -> None:
    model = Own()
    assert found(model) == {}
    with pytest.raises(BridgeError, match="call the model with one batch"):
        precision.float32_outputs(model)


def half_converted() -> Any:
    BRIDGE.set_global_policy("float32")
    body = [keras.Input((8,)), layers.Dense(4, name="first"), layers.BatchNormalization(), layers.Dense(4, name="last")]
    backbone = keras.Sequential(body, name="backbone")
    BRIDGE.set_global_policy("mixed_float16")
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.Dense(3, name="head")(backbone(inputs))))


def test_a_half_converted_model_names_both_groups() -> None:
    finding = found(half_converted())["half_converted"]
    assert finding.layers == ("backbone/first", "backbone/last")
    assert "2 layers compute in float32: backbone/first, backbone/last; 1 in float16: head" in finding.what
    assert audit_model(half_converted(), mixed_precision_planned=True) == []


def fit(model: Any, *callbacks: Any, **arguments: Any) -> None:
    if not BRIDGE.is_compiled(model):
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    x, y = rows(8)
    model.fit(x, y, batch_size=4, verbose=0, callbacks=list(callbacks), **arguments)


@pytest.mark.parametrize("kind", ["sequential", "own call", "own call before its first batch"])
def test_a_fit_warns_records_and_reports(tmp_path: Any, kind: str) -> None:
    model = Own() if kind.endswith("batch") else HALF[kind][0]()
    config = load_config(run={"directory": str(tmp_path)}, fit={"steps_per_execution": 1})
    with pytest.warns(AuditWarning, match="(?s)float16_outputs.*layers: out") as caught:
        fit(model, *build_callbacks(config), epochs=2)
    assert len([item for item in caught if item.category is AuditWarning]) == 1
    evidence = read(latest(tmp_path))
    assert len(evidence.warnings) == 1 and "layers: out" in evidence.warnings[0]
    page = io.StringIO()
    print_report(evidence, console=Console(file=page, width=200))
    assert "float16_outputs: 1 output layer in float16" in page.getvalue()
    assert "float32_outputs(model)" in page.getvalue()


def test_a_config_that_mends_the_model_leaves_nothing_to_find(tmp_path: Any) -> None:
    config = load_config(run={"directory": str(tmp_path)}, mixed_precision={"policy": "mixed_float16"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", AuditWarning)
        fit(half_converted(), *build_callbacks(config))
    assert read(latest(tmp_path)).warnings == ()


def test_a_config_that_asks_for_float16_outputs_is_told(tmp_path: Any) -> None:
    section = {"policy": "mixed_float16", "float32_output": False}
    config = load_config(run={"directory": str(tmp_path)}, mixed_precision=section)
    with pytest.warns(AuditWarning, match="float16_outputs"):
        fit(stack(), *build_callbacks(config))


@pytest.mark.skipif(not KERAS3, reason="Keras 2's optimizers accumulate no gradients")
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_average_with_accumulation_is_a_fault_until_a_fit_corrects_it(wrapped: bool) -> None:
    model = float32_throughout()
    optimizer = keras.optimizers.SGD(0.01, use_ema=True, ema_momentum=0.9, gradient_accumulation_steps=2)
    if wrapped:
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse", jit_compile=False)
    finding = found(model)["averaged_accumulation"]
    assert "use_ema=True and gradient_accumulation_steps=2" in str(finding) and finding.refuses
    assert "leave out gradient_accumulation_steps" in finding.fix
    fit(model, XlaJit(False))
    assert "averaged_accumulation" not in found(model)
    state = BRIDGE.reduction(model)
    assert state.settings.every == 2 and state.updates == state.batches // 2 > 0
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == state.updates


@pytest.mark.parametrize("arguments", [{"use_ema": True}, {"gradient_accumulation_steps": 4}])
def test_either_of_the_two_alone_trains(arguments: dict[str, Any]) -> None:
    if not KERAS3 and "use_ema" not in arguments:
        pytest.skip("Keras 2's optimizers accumulate no gradients")
    model = float32_throughout()
    model.compile(keras.optimizers.SGD(0.01, **arguments), "mse", jit_compile=False)
    fit(model, XlaJit(False))
    assert int(model.optimizer.iterations) >= (2 if "use_ema" in arguments else 0)
