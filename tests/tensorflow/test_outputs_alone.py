"""A newcomer's first models on the default config: one layer, whose outputs stay in float32, and nothing to halve."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import tfvolta
from tests.stack import STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.errors import NoEffectError
from tfvolta.evidence.reading import latest, read
from tfvolta.outcome import Status
from tfvolta.session import Session

LAYERS = keras.layers
X = np.random.RandomState(0).randn(32, 4).astype("float32")
Y = (X.sum(1, keepdims=True) > 0).astype("float32")


class OwnProduct(LAYERS.Layer):
    """Multiplies by code of its own."""

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(name="w", shape=(shape[-1], 1))
        super().build(shape)

    def call(self, inputs: Any) -> Any:
        return tf.matmul(inputs, tf.cast(self.w, inputs.dtype))


class Subclassed(keras.Model):
    """Makes its only layer itself, and is built by its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.only = LAYERS.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.only(inputs)


def sequential(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *layers])


ALONE: dict[str, Callable[[], Any]] = {
    "linear regression": lambda: sequential(LAYERS.Dense(1)),
    "logistic regression": lambda: sequential(LAYERS.Dense(1, activation="sigmoid")),
    "without an input": lambda: keras.Sequential([LAYERS.Dense(1)]),
    "flattened": lambda: sequential(LAYERS.Flatten(), LAYERS.Dense(1)),
    "normalised": lambda: sequential(LAYERS.BatchNormalization(), LAYERS.Dense(1)),
    "own product": lambda: sequential(OwnProduct()),
    "subclassed": Subclassed,
}


def trained(make: Callable[[], Any], tmp_path: Path, *overrides: str) -> Any:
    """The outcomes of a fit under the default config, of a model that exists before."""
    made = make()
    made.compile(keras.optimizers.SGD(0.1), "mse")
    config = tfvolta.load_config("tfvolta:default", overrides=[f"run.directory={tmp_path}", *overrides])
    made.fit(X, Y, batch_size=16, verbose=0, callbacks=tfvolta.build_callbacks(config))
    return read(latest(tmp_path)).outcomes


@pytest.mark.parametrize("kind", ALONE)
def test_the_default_config_trains_it_and_says_that_nothing_is_gained(kind: str, tmp_path: Path) -> None:
    outcomes = trained(ALONE[kind], tmp_path)
    assert outcomes["retrofit"].status is Status.NOT_APPLICABLE
    assert "Mixed precision gains nothing in this model." in outcomes["retrofit"].message
    assert outcomes["float32_islands"].status in (Status.NOT_APPLICABLE, Status.APPLIED)  # applied next to float16
    assert not {name for name, each in outcomes.items() if each.status in (Status.NO_EFFECT, Status.LATE)}


@pytest.mark.parametrize(
    "make",
    [
        lambda: sequential(LAYERS.Dense(4, activation="relu"), LAYERS.Dense(1)),
        lambda: sequential(LAYERS.Dense(1), LAYERS.Activation("sigmoid")),
    ],
    ids=["hidden layer", "activation of its own"],
)
def test_one_more_layer_computes_in_float16(make: Callable[[], Any], tmp_path: Path) -> None:
    outcomes = trained(make, tmp_path)
    assert outcomes["retrofit"].status is outcomes["float32_islands"].status is Status.APPLIED
    assert outcomes["retrofit"].observed["products"]["float16"]


def test_who_asks_for_this_model_is_told_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(NoEffectError, match=r"mixed_precision\.policy: float32 for this model"):
        trained(ALONE["linear regression"], tmp_path, "mixed_precision.policy=mixed_float16")


@pytest.mark.parametrize("output", ["true", "false"])
def test_islands_of_ones_own_that_leave_nothing_are_refused(output: str, tmp_path: Path) -> None:
    def make() -> Any:
        return sequential(LAYERS.Dense(4, activation="relu"), LAYERS.Dense(1))

    islands = ("mixed_precision.float32_layers=[Dense]", f"mixed_precision.float32_output={output}")
    with pytest.raises(NoEffectError, match="nothing to keep apart"):
        trained(make, tmp_path, *islands)


def test_what_was_changed_is_taken_back_though_it_gained_nothing(tmp_path: Path) -> None:
    made = ALONE["normalised"]()
    made.compile(keras.optimizers.SGD(0.1), "mse")
    session = Session(tfvolta.load_config("tfvolta:default", overrides=[f"run.directory={tmp_path}"]), stack=STACK)
    made.fit(X, Y, batch_size=16, verbose=0, callbacks=tfvolta.callbacks.session_callbacks(session))
    bridge = bridge_for_stack(STACK)
    assert session.endings["retrofit"].outcome.status is Status.NOT_APPLICABLE
    assert "float16" in bridge.compute_dtypes(made).values()
    assert session.undo()["retrofit"]
    assert set(bridge.compute_dtypes(made).values()) == {"float32"}
