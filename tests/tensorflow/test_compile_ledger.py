"""What is traced and compiled in a fit: each shape once, in the call that trains with it, and none that is not new."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import numpy as np
import pytest

from tests.stack import STACK, keras, tf
from tfvolta.callbacks import CompileLedger, XlaJit, session_callbacks
from tfvolta.config import load_config
from tfvolta.data import padded_batches, static_batches
from tfvolta.errors import RecompilationWarning
from tfvolta.evidence.store import read
from tfvolta.session import Origin, Session


def sequences(lengths: list[int], parts: str = "tuple") -> Any:
    """Batches of four sequences of the lengths given, one a batch."""

    def batches() -> Any:
        for length in lengths:
            x = np.ones((4, length, 3), "float32")
            yield ({"words": x} if parts == "dict" else x), np.ones((4, 1), "float32")

    spec = tf.TensorSpec((None, None, 3))
    signature = ({"words": spec} if parts == "dict" else spec), tf.TensorSpec((None, 1))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def model(parts: str = "tuple") -> Any:
    inputs = keras.Input((None, 3), name="words")
    mean = keras.layers.GlobalAveragePooling1D()(keras.layers.Dense(4)(inputs))
    made = keras.Model({"words": inputs} if parts == "dict" else inputs, keras.layers.Dense(1)(mean))
    made.compile("sgd", "mse", jit_compile=False)
    return made


def fitted(made: Any, data: Any, jit: bool = True, limit: int = 4, **arguments: Any) -> tuple[CompileLedger, list[str]]:
    """The ledger of a fit, and its alarms as warnings."""
    ledger = CompileLedger(limit)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.fit(data, verbose=0, callbacks=[XlaJit(jit), ledger], **arguments)
    said = [str(each.message) for each in caught if issubclass(each.category, RecompilationWarning)]
    return ledger, [text for text in said if text.startswith("XLA compiled")]


def places(ledger: CompileLedger) -> list[tuple[int, int, str]]:
    return [(entry.epoch, entry.step, entry.seen_by) for entry in ledger.entries if entry.function == "train"]


def test_each_length_is_compiled_in_the_step_that_has_it() -> None:
    made = model()
    ledger, alarms = fitted(made, sequences([3, 3, 5, 3, 7]), epochs=2)
    assert places(ledger) == [(0, 0, "trace"), (0, 2, "shapes"), (0, 4, "shapes")]
    assert [dict(entry.shapes[0]) for entry in ledger.entries] == [
        {"x": (4, length, 3), "y": (4, 1)} for length in (3, 5, 7)
    ]
    assert alarms == []
    summary = ledger.summary()
    assert (summary["compilations"], summary["shapes"], summary["traces"]) == (3, 3, 1)
    assert summary["compile_seconds"] > 0 and "x (4, 7, 3)" in summary["what"][2]
    # XLA keeps what it compiled: a second fit compiles what is new only, and that is late.
    again, alarms = fitted(made, sequences([3, 9]), epochs=1)
    assert places(again) == [(0, 1, "shapes")] and alarms == []


def test_too_many_and_late_ones_are_told_once() -> None:
    ledger, alarms = fitted(model("dict"), sequences([3, 4, 5], "dict"), limit=2, epochs=2)
    assert alarms == ledger.alarms and len(alarms) == 1
    assert "x.words came as (4, 3, 3), (4, 4, 3), (4, 5, 3)" in alarms[0] and "Pad x.words" in alarms[0]
    late: list[int] = []

    def growing() -> Any:
        late.append(1)
        for length in (3, 3 + len(late) // 2):
            yield np.ones((4, length, 3), "float32"), np.ones((4, 1), "float32")

    signature = tf.TensorSpec((None, None, 3)), tf.TensorSpec((None, 1))
    data = tf.data.Dataset.from_generator(growing, output_signature=signature)
    _, alarms = fitted(model(), data, epochs=2)
    assert len(alarms) == 1 and "last in epoch 1, step 1" in alarms[0]


@pytest.mark.parametrize("change", ["none", "drop", "pad", "several steps a call"])
def test_a_smaller_last_batch(change: str) -> None:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    steps = 2 if change == "several steps a call" else 1
    made.compile("sgd", "mse", jit_compile=False, steps_per_execution=steps)
    data = tf.data.Dataset.from_tensor_slices((np.ones((22, 2), "f"), np.ones((22, 1), "f"))).batch(8)
    if change == "drop":
        data = static_batches(data)
    if change == "pad":
        data = padded_batches(data, made)
    ledger, _ = fitted(made, data, epochs=2)
    second = [] if change in ("drop", "pad") else [(0, 2, "shapes")]
    assert places(ledger) == [(0, 0, "trace"), *second]


def test_a_step_that_is_not_compiled_is_traced_only() -> None:
    ledger, alarms = fitted(model(), sequences([3, 5, 7]), jit=False, validation_data=sequences([3]))
    assert [(entry.function, entry.traced, entry.compiled) for entry in ledger.entries] == [
        ("train", True, False),
        ("validation", True, False),
    ]
    assert ledger.summary()["pays_off"] is None and alarms == []


def test_batches_stay_what_they_are() -> None:
    """Looking at the shapes must not change a bit, nor the order, of what is trained."""
    weights = []
    for callbacks in ([XlaJit()], [XlaJit(), CompileLedger()]):
        keras.utils.set_random_seed(1)
        made = model()
        x = np.random.default_rng(0).random((10, 4, 3)).astype("float32")
        data = tf.data.Dataset.from_tensor_slices((x, x[:, :1, 0])).shuffle(10, seed=1).batch(4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecompilationWarning)
            made.fit(data, epochs=2, verbose=0, callbacks=callbacks)
        weights.append(made.get_weights())
    for first, second in zip(*weights):
        np.testing.assert_array_equal(first, second)


def test_break_even_takes_the_time_of_an_earlier_run(tmp_path: pathlib.Path) -> None:
    found = []
    for jit in ("model", "off", "model"):
        made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        made.compile("sgd", "mse", jit_compile=False)
        config = load_config(xla={"jit": jit}, run={"directory": str(tmp_path)})
        data = tf.data.Dataset.from_tensors((np.ones((8, 2), "f"), np.ones((8, 1), "f"))).repeat(20)
        before = set(tmp_path.iterdir())
        session = Session(config, stack=STACK, origin=Origin())
        made.fit(data, epochs=2, verbose=0, callbacks=session_callbacks(session))
        session.close()
        (folder,) = set(tmp_path.iterdir()) - before
        found.append((folder.name, read(folder).measurements["compilations"]))
    assert "no run of this model without XLA" in found[0][1]["pays_off"]["text"]
    assert found[1][1]["compiled"] is False and found[1][1]["not_compiled"]
    assert found[1][0] in found[2][1]["pays_off"]["text"]
    assert found[2][1]["pays_off"]["steps_planned"] == 40
    assert len({values["model"] for _, values in found}) == 1
