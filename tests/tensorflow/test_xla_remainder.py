"""The smaller last batch of an epoch, which XLA compiles once more: said before it happens, and left out if asked."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow.xla_models import compiled, dataset, plain, rows
from tfvolta.bridge import bridge_for
from tfvolta.bridge.datasets import batching, static_batch
from tfvolta.callbacks import Throughput, XlaJit
from tfvolta.config import load_config
from tfvolta.data import static_batches
from tfvolta.data.arguments import without_remainder
from tfvolta.errors import ConfigError, ContradictionWarning, NoEffectError, NoEffectWarning, RecompilationWarning
from tfvolta.evidence.store import read
from tfvolta.outcome import Status
from tfvolta.script.run import ScriptRun
from tfvolta.session import Origin, Session

SAID = r"40 rows, batch 16 leaves a remainder of 8: one extra compilation"


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    keras.utils.set_random_seed(1)


def remainders(fit: Any) -> list[str]:
    """What a fit warned of about extra compilations."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [str(each.message) for each in caught if issubclass(each.category, RecompilationWarning)]


@pytest.mark.parametrize("kind", ["arrays", "dataset", "split"])
def test_the_remainder_is_said_once_before_the_first_step(kind: str) -> None:
    model, callback = compiled(plain()), XlaJit()
    arguments: dict[str, Any] = {
        "arrays": {"x": rows(40)[0], "y": rows(40)[1], "batch_size": 16},
        "dataset": {"x": dataset(40, 16).prefetch(1)},
        "split": {"x": rows(50)[0], "y": rows(50)[1], "batch_size": 16, "validation_split": 0.2},
    }[kind]
    said = remainders(lambda: model.fit(**arguments, epochs=2, verbose=0, callbacks=[callback]))
    assert len(said) == 1
    assert said[0].startswith(SAID)


@pytest.mark.parametrize(
    "data",
    [
        lambda: dataset(48, 16),
        lambda: dataset(8, 16),  # one shape all the same
        lambda: tf.data.Dataset.from_tensor_slices(rows(40)).batch(16, drop_remainder=True),
        lambda: tf.data.Dataset.from_tensor_slices(rows(40)).repeat().batch(16).take(5),
        lambda: dataset(40, 16).take(2),
        lambda: static_batches(dataset(40, 16)),
    ],
)
def test_nothing_is_said_where_nothing_is_left_over(data: Any) -> None:
    assert remainders(lambda: compiled(plain()).fit(data(), verbose=0, callbacks=[XlaJit()])) == []


def test_nothing_is_said_where_nothing_is_compiled() -> None:
    assert remainders(lambda: compiled(plain()).fit(dataset(40, 16), verbose=0, callbacks=[XlaJit(False)])) == []


def test_it_is_in_the_evidence(tmp_path: pathlib.Path) -> None:
    config = load_config(xla={"jit": "model"}, run={"directory": str(tmp_path)})
    model = compiled(plain())
    with pytest.warns(RecompilationWarning, match=SAID):
        model.fit(dataset(40, 16), verbose=0, callbacks=tfvolta.build_callbacks(config, model))
    (folder,) = tmp_path.iterdir()
    said = [text for text in read(folder).warnings if text.startswith(SAID)]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("make", "batch", "remainder", "full"),
    [
        (lambda d: d.batch(16), 16, 8, 2),
        (lambda d: d.batch(16, num_parallel_calls=2).map(lambda x, y: (x, y)).cache().prefetch(2), 16, 8, 2),
        (lambda d: d.batch(16).repeat(3), 16, 8, 6),
        (lambda d: d.repeat(2).batch(16), 16, 0, 5),
        (lambda d: d.repeat().batch(16), 16, 0, None),
        (lambda d: d.batch(16).take(2), 16, 0, 2),
        (lambda d: d.batch(16).take(3), 16, 8, 2),
        (lambda d: d.batch(16).skip(1), 16, 8, None),
        (lambda d: d.batch(10), 10, 0, 4),
        (lambda d: d.filter(lambda x, y: True).batch(16), 16, None, None),
        (lambda d: d.batch(16).unbatch().batch(4), 4, None, None),
    ],
)
def test_how_a_data_set_is_batched(make: Any, batch: int, remainder: Any, full: Any) -> None:
    found = batching(make(tf.data.Dataset.from_tensor_slices(rows(40))))
    assert found is not None
    assert (found.batch, found.remainder, found.full_batches) == (batch, remainder, full)


def test_batches_that_later_transformations_hide() -> None:
    hidden = dataset(40, 16).flat_map(lambda x, y: tf.data.Dataset.from_tensors((x, y)))
    assert batching(hidden) is None
    with pytest.raises(ConfigError, match=r"batch_size=64"):
        static_batches(hidden)
    assert [len(x) for x, _ in static_batches(hidden, 16).as_numpy_iterator()] == [16, 16]


@pytest.mark.parametrize("structure", ["tuple", "dict", "single", "ragged"])
def test_static_batches_of_any_structure(structure: str) -> None:
    x, y = rows(40)
    given: Any = {
        "tuple": (x, y),
        "dict": {"a": x, "b": y},
        "single": x,
        "ragged": (tf.ragged.constant([[1.0] * (n % 3 + 1) for n in range(40)]), y),
    }[structure]
    former = tf.data.Dataset.from_tensor_slices(given).batch(16).repeat(2)
    kept = static_batches(former)
    assert int(kept.cardinality()) == 4
    if structure != "ragged":
        assert static_batch(kept.element_spec) == 16
    tf.nest.assert_same_structure(former.element_spec, kept.element_spec)
    sizes = [int(tf.nest.flatten(element)[-1].shape[0]) for element in kept]
    assert sizes == [16, 16, 16, 16]
    same = dataset(48, 16)
    assert static_batches(static_batches(same)) is not same
    fixed = tf.data.Dataset.from_tensor_slices(given).batch(16, drop_remainder=True)
    assert static_batches(fixed) is fixed or structure == "ragged"


def test_arrays_keep_keras_s_shuffling() -> None:
    x = np.arange(40, dtype="float64").reshape(40, 1)
    for shuffle in (True, False, "batch"):
        arguments = {"x": [x, {"name": x}], "y": x, "batch_size": 16, "shuffle": shuffle, "sample_weight": x[:, 0]}
        changed, change = without_remainder(arguments, "float32")
        assert change.static
        assert changed["y"] is None and changed["batch_size"] is None
        epochs = [list(changed["x"]) for _ in range(2)]
        taken = [[int(n) for (pair, _, _) in epoch for n in pair[0].numpy()[:, 0]] for epoch in epochs]
        assert [len(set(numbers)) for numbers in taken] == [32, 32]
        assert static_batch(changed["x"].element_spec) == 16
        assert epochs[0][0][1].dtype == tf.float32
        if shuffle is True:
            assert taken[0] != taken[1] and set(taken[0]) != set(range(32))
        elif shuffle is False:
            assert taken == [list(range(32))] * 2
        else:
            assert {tuple(numbers[:16]) for numbers in taken} <= {tuple(range(16)), tuple(range(16, 32))}


def test_validation_split_keeps_the_last_rows() -> None:
    x = np.arange(50, dtype="float32").reshape(50, 1)
    changed, change = without_remainder({"x": x, "y": x, "validation_split": 0.2, "batch_size": 16}, "float32")
    assert change.static and "8 of 40 rows" in change.message
    np.testing.assert_array_equal(changed["validation_data"][0][:, 0], np.arange(40, 50))
    assert changed["validation_split"] == 0.0 and changed["validation_batch_size"] == 16


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": iter([rows(4)])},
        {"x": rows(8)[0], "y": rows(8)[1], "batch_size": 16},
        {"x": rows(40)[0], "y": rows(40)[1], "batch_size": 16, "steps_per_epoch": 3},
    ],
)
def test_what_cannot_be_changed_is_left_alone_and_said(arguments: dict[str, Any]) -> None:
    changed, change = without_remainder(arguments, "float32")
    assert changed is arguments
    assert not change.static and change.message.endswith(".")


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": rows(8)[0], "y": rows(8)[1], "batch_size": 16},
        {"x": tf.data.Dataset.from_tensor_slices(rows(8)).batch(16)},
    ],
    ids=["arrays", "data set"],
)
def test_a_batch_larger_than_the_data_names_the_largest(arguments: dict[str, Any]) -> None:
    _, change = without_remainder(arguments, "float32")
    assert "nothing is left to train with" in change.message and "a batch of 8 rows or fewer" in change.fix


def run_script(tmp_path: pathlib.Path, lines: str, strict: bool = True, **sections: Any) -> tuple[Any, dict[str, Any]]:
    """Runs a script under a plan in this process; its evidence and what it left behind."""
    script = tmp_path / "train.py"
    package = {"keras3": "keras", "tf_keras": "tf_keras", "keras2": "keras"}[STACK]
    script.write_text(
        f"import {package} as keras, numpy as np, tensorflow as tf\n"
        "from tests.tensorflow.xla_models import dataset, plain, rows, sequential, Text\n"
        "import tests.tensorflow.test_xla_remainder as here\n" + lines,
        encoding="utf-8",
    )
    config = load_config(run={"directory": str(tmp_path / "runs"), "strict": strict}, **sections)
    session = Session(config, stack=STACK, origin=Origin(script=str(script)))
    LEFT.clear()
    try:
        ScriptRun(session).run(str(script), [])
    finally:
        session.close()
    (folder,) = (tmp_path / "runs").iterdir()
    return read(folder), dict(LEFT)


LEFT: dict[str, Any] = {}  # what a script leaves for its test

FIT = """
model = plain()
model.compile("adam", "mse", jit_compile=False)
{fit}
here.LEFT.update(model=model, steps=int(model.optimizer.iterations))
"""


@pytest.mark.parametrize(
    "fit",
    [
        "model.fit(*rows(40), batch_size=16, epochs=2, verbose=0)",
        "model.fit(rows(40)[0], rows(40)[1], 16, 2, 0, validation_data=rows(4), sample_weight=np.ones(40))",
        "model.fit(dataset(40, 16), epochs=2, verbose=0)",
        "model.fit(*rows(50), batch_size=16, epochs=2, verbose=0, validation_split=0.2)",
    ],
)
def test_a_script_trains_on_whole_batches_only(tmp_path: pathlib.Path, fit: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecompilationWarning)
        evidence, left = run_script(tmp_path, FIT.format(fit=fit), xla={"jit": "model", "drop_remainder": True})
    assert left["steps"] == 4
    assert evidence.outcomes["drop_remainder"].status is Status.APPLIED
    assert evidence.outcomes["jit"].status is Status.APPLIED
    assert not [text for text in evidence.warnings if "remainder" in text]
    assert bridge_for(left["model"]).train_graph(left["model"]).must_compile


def test_a_script_with_an_operation_that_xla_refuses_trains_on(tmp_path: pathlib.Path) -> None:
    text = FIT.replace("plain()", "sequential(Text(name='odd'))").format(fit="model.fit(*rows(16), verbose=0)")
    with pytest.warns(NoEffectWarning, match="AsString in layer odd"):
        evidence, left = run_script(tmp_path, text, strict=False, xla={"jit": "model"})
    assert left["steps"] == 1
    assert evidence.outcomes["jit"].status is Status.NO_EFFECT
    assert "AsString in layer odd" in evidence.outcomes["jit"].message


def test_a_script_with_data_that_cannot_be_changed_is_told(tmp_path: pathlib.Path) -> None:
    fit = "model.fit((rows(16) for _ in range(2)), steps_per_epoch=2, verbose=0)"
    with pytest.raises(NoEffectError, match="whose batches are not known"):
        run_script(tmp_path, FIT.format(fit=fit), xla={"drop_remainder": True})


def test_without_tfvolta_run_the_data_must_be_given_so() -> None:
    config = load_config(xla={"jit": "model", "drop_remainder": True})
    for data, fine in ((static_batches(dataset(40, 16)), True), (dataset(40, 16), False)):
        model = compiled(plain())
        session = Session(config, stack=STACK, origin=Origin(record=False))
        callbacks = [tfvolta.callbacks.ApplyPlan(session)]
        if fine:
            model.fit(data, verbose=0, callbacks=callbacks)
            assert session.endings["drop_remainder"].outcome.status is Status.APPLIED
        else:
            with pytest.raises(NoEffectError, match="static_batches"):
                model.fit(data, verbose=0, callbacks=callbacks)


@pytest.mark.skipif(KERAS3, reason="Keras 3 knows 'auto'")
@pytest.mark.parametrize(("jit", "given"), [("off", False), ("model", True), (None, True)])
def test_keras_2_is_never_given_auto(tmp_path: pathlib.Path, jit: Any, given: bool) -> None:
    lines = """
seen = []
class Seen(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        seen.append(self.model.jit_compile)
model = plain()
model.compile("adam", "mse", jit_compile="auto")
seen.append(model.jit_compile)
model.fit(*rows(8), batch_size=4, verbose=0, callbacks=[Seen()])
here.LEFT.update(seen=seen)
"""
    sections = {"xla": {"jit": jit}} if jit else {}
    with pytest.warns(ContradictionWarning, match="takes every string for True"):
        evidence, left = run_script(tmp_path, lines, **sections)
    assert left["seen"] == [jit is None, given]
    assert any("jit_compile='auto'" in text for text in evidence.warnings)


@pytest.mark.parametrize("drop", [False, True])
def test_compile_steps_are_marked_and_do_not_count(drop: bool) -> None:
    expected = [(0, 0, "traced")] if drop else [(0, 0, "traced"), (0, 2, "likely XLA compilation")]
    for _ in range(3):  # on a busy machine a step may take as long as a compilation, which is told by its time
        summary = trained_summary(drop)
        marked = [(step["epoch"], step["step"], step["reason"]) for step in summary["compile_steps"]]
        if marked == expected:
            break
    assert marked == expected
    slowest = min(step["seconds"] for step in summary["compile_steps"])
    assert summary["step_seconds_median"] < slowest / 5
    assert summary["n"] == (6 if drop else 9)


def trained_summary(drop: bool) -> dict[str, Any]:
    """What the throughput monitor says of a compiled fit with or without a smaller last batch."""
    parts = [keras.layers.Dense(64, activation="relu") for _ in range(12)]
    model = keras.Sequential([keras.Input((2,)), *parts, keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    throughput = Throughput()
    data = static_batches(dataset(40, 16)) if drop else dataset(40, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompilationWarning)
        model.fit(data, epochs=4, verbose=0, callbacks=[XlaJit(), throughput])
    return throughput.summary()
