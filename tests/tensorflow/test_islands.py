"""float32 islands by class, base class, name and path: when layers are constructed, and in models that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

import tfvolta
from tests.stack import STACK, keras
from tfvolta.bridge import bridge_for_stack
from tfvolta.errors import NoEffectError
from tfvolta.evidence.reading import latest, read
from tfvolta.outcome import Status
from tfvolta.session import Origin, Session

BRIDGE = bridge_for_stack(STACK)
X, Y = np.ones((4, 4), "float32"), np.ones((4, 1), "float32")


class OwnNorm(keras.layers.BatchNormalization):
    """Derived from a class that a pattern names."""


class Pair(keras.layers.Layer):
    """Holds layers of its own, which know nothing of its policy."""

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self.one = keras.layers.Dense(4, name="one")
        self.two = keras.layers.Dense(4, name="two")

    def call(self, inputs: Any) -> Any:
        return self.two(self.one(inputs))


def model() -> Any:
    inputs = keras.Input((4,))
    inner_input = keras.Input((4,))
    inner = keras.Model(inner_input, keras.layers.Dense(4, name="deep")(inner_input), name="inner")
    hidden = inner(OwnNorm(name="norm")(keras.layers.Dense(4, name="wide")(inputs)))
    hidden = keras.layers.Dense(4, name="body")(hidden)
    made = keras.Model(inputs, keras.layers.Dense(1, name="head")(Pair(name="pair")(hidden)))
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return made


def settings(patterns: list[str]) -> dict[str, Any]:
    return {"policy": "mixed_float16", "float32_layers": patterns}


def dtypes(trained: Any) -> dict[str, str]:
    return BRIDGE.compute_dtypes(trained)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    patterns = ["BatchNormalization", "wide", "dee?", "pair"]
    config = tfvolta.load_config(run={"directory": str(tmp_path)}, mixed_precision=settings(patterns))
    opened = Session(config, stack=STACK, origin=Origin(record=False))
    opened.enter(tfvolta.phase.Phase.BUILD)
    yield opened
    opened.undo()


def test_layers_are_constructed_as_islands(session: Session) -> None:
    made = model()
    found = dtypes(made)
    assert {path: found[path] for path in ("wide", "norm", "inner/deep", "pair", "head")} == {
        "wide": "float32",
        "norm": "float32",
        "inner/deep": "float32",
        "pair": "float32",
        "head": "float16",
    }
    asked = keras.layers.Dense(1, name="wide", dtype="float16" if STACK == "keras3" else "mixed_float16")
    assert asked.compute_dtype == "float16"  # what a script asks for stays
    assert session.undo()["built_islands"] is True
    assert keras.layers.Dense(1, name="wide").compute_dtype == "float32"  # the policy is float32 again
    assert BRIDGE.float32_constructed() == ()


def test_fit_completes_what_lies_inside_an_island(session: Session) -> None:
    made = model()
    made.fit(X, Y, batch_size=2, verbose=0, callbacks=tfvolta.callbacks.session_callbacks(session))
    found = dtypes(made)
    assert {path for path, dtype in found.items() if dtype == "float16"} - {"inner"} == {"body"}
    assert found["pair/one"] == found["pair/two"] == found["head"] == "float32"
    for name in ("built_islands", "float32_islands"):
        assert session.endings[name].outcome.status is Status.APPLIED, session.endings[name].outcome.message


@pytest.mark.parametrize(
    ("patterns", "islands"),
    [
        (["inner"], {"inner/deep"}),
        (["pair/one"], {"pair/one"}),
        (["BatchNormalization"], {"norm"}),
        (["Pair", "wid*"], {"pair", "pair/one", "pair/two", "wide"}),
    ],
)
def test_models_that_exist_get_theirs_with_all_that_is_inside(
    patterns: list[str], islands: set[str], tmp_path: Path
) -> None:
    made = model()
    config = tfvolta.load_config(run={"directory": str(tmp_path)}, mixed_precision=settings(patterns))
    made.fit(X, Y, batch_size=2, verbose=0, callbacks=tfvolta.build_callbacks(config))
    found = dtypes(made)
    leaves = {path for path in found if path not in ("inner", "head")}
    assert {path for path in leaves if found[path] == "float32"} == islands
    outcomes = read(latest(tmp_path)).outcomes
    assert outcomes["float32_islands"].status is Status.APPLIED and outcomes["retrofit"].status is Status.APPLIED


def test_a_pattern_without_a_layer_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    run = {"directory": str(tmp_path)}
    config = tfvolta.load_config(run=run, mixed_precision=settings(["BatchNormalisation", "Head", "wide"]))
    with pytest.raises(NoEffectError, match=r"instead of BatchNormalisation write BatchNormalization") as caught:
        model().fit(X, Y, batch_size=2, verbose=0, callbacks=tfvolta.build_callbacks(config))
    assert "instead of Head write head" in str(caught.value)
