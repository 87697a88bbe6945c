"""A step that takes too long to compile is told in another process; data that XLA does not take, by their types."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tests.stack import STACK, keras, tf
from tests.tensorflow.xla_models import Table, rows
from tfvolta.bridge import bridge_for, xla_limit
from tfvolta.bridge.records import CompileProbe
from tfvolta.callbacks import ApplyPlan, XlaJit
from tfvolta.config import load_config
from tfvolta.errors import NoEffectError
from tfvolta.outcome import Outcome, Status
from tfvolta.session import Origin, Session


def model(*layers: Any) -> Any:
    made = keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    made.compile("adam", "mse", jit_compile=False)
    return made


def fitted(made: Any, limit: float, strict: bool = False, fits: int = 1) -> tuple[Outcome, list[str]]:
    """How the setting ended in a fit with a limit, and what was said."""
    config = load_config(xla={"jit": "model", "compile_limit_seconds": limit}, run={"strict": strict})
    session = Session(config, stack=STACK, origin=Origin(record=False))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(fits):
            made.fit(*rows(16), batch_size=8, verbose=0, callbacks=[ApplyPlan(session)])
    return session.endings["jit"].outcome, [str(each.message) for each in caught]


def test_a_step_within_the_limit_is_compiled() -> None:
    made = model()
    outcome, said = fitted(made, 300.0)
    assert outcome.status is Status.APPLIED and not [text for text in said if "compile_limit" in text]
    assert 0 < outcome.observed["compile_seconds_in_another_process"] < 300
    assert bridge_for(made).train_graph(made).must_compile  # type: ignore[union-attr]
    assert int(made.optimizer.iterations) == 2


def test_a_step_beyond_the_limit_is_not_compiled_and_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    outcome, _ = fitted(made, 0.02)
    assert outcome.status is Status.NO_EFFECT
    assert "cannot compile the step in 0.02 s (xla.compile_limit_seconds)" in outcome.message
    assert int(made.optimizer.iterations) == 2 and not bridge_for(made).train_graph(made).must_compile  # type: ignore[union-attr]
    # The next fit of a session remembers it and does not try; a strict one is refused with the line to write.
    tries: list[float] = []

    def run(_: str, limit: float) -> CompileProbe:
        tries.append(limit)
        return CompileProbe(exceeded=True)

    monkeypatch.setattr(xla_limit, "_run", run)
    assert fitted(model(), 0.02, fits=2)[0].status is Status.NO_EFFECT and tries == [0.02]
    with pytest.raises(NoEffectError, match=r"a larger xla.compile_limit_seconds"):
        fitted(model(), 0.02, strict=True)


def test_what_another_process_cannot_be_given_is_said() -> None:
    made = model(Table())
    made.fit(*rows(16), batch_size=8, verbose=0)
    made.jit_compile = True
    made.train_function = None
    made.make_train_function()
    data = tf.data.Dataset.from_tensor_slices(rows(16)).batch(8)
    found = xla_limit.probe(made, iter(data), 8, 60.0)
    assert "such as a table" in found.reason and found.seconds is None and not found.exceeded


class Sum(keras.Model):  # type: ignore[misc]
    """Takes rows of strings, ragged or sparse rows."""

    def __init__(self) -> None:
        super().__init__()
        self.head = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        if isinstance(inputs, tf.RaggedTensor):
            inputs = tf.reduce_sum(inputs.to_tensor(), axis=1, keepdims=True)
        elif isinstance(inputs, tf.SparseTensor):
            inputs = tf.sparse.to_dense(inputs)
        elif inputs.dtype == tf.string:
            inputs = tf.strings.to_number(inputs)
        return self.head(inputs)


DATA: dict[str, Any] = {
    "string": lambda: np.full((8, 2), "1"),
    "ragged": lambda: tf.ragged.constant([[1.0] * (number % 3 + 1) for number in range(8)]),
}


@pytest.mark.parametrize("kind", DATA)
def test_data_that_xla_does_not_take_are_told_by_their_types(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tf.data.Dataset.from_tensor_slices((DATA[kind](), np.ones((8, 1), "float32"))).batch(4)
    made = Sum()
    made.compile("sgd", "mse", jit_compile=False)
    with pytest.raises(NoEffectError, match=rf"{kind} input x .*the data.*\n.*prepare the data: strings as integers"):
        made.fit(data, verbose=0, callbacks=[XlaJit()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(data, verbose=0, callbacks=[XlaJit(strict=False)])
    assert int(made.optimizer.iterations) == 2
