"""Sequences in batches of few shapes: nothing is lost, weights stay, and the loss of an epoch is the same."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from tests.stack import STACK, keras, tf
from tfvolta.bridge import bridge_for, sequence_data
from tfvolta.config import load_config
from tfvolta.data import sequence_batches
from tfvolta.errors import ConfigError, PlanError
from tfvolta.evidence.store import read
from tfvolta.outcome import Status
from tfvolta.script.arguments import fit_arguments
from tfvolta.script.run import ScriptRun
from tfvolta.session import Origin, Session

LENGTHS = (3, 9, 17, 30, 1, 12, 8, 25, 5, 31)
IDS = [np.arange(1, length + 1, dtype="int32") + 40 * number for number, length in enumerate(LENGTHS)]
LABELS = np.arange(10, dtype="float32")
ROWS = tf.ragged.constant([row.tolist() for row in IDS], dtype=tf.int32)
PADDED = ROWS.to_tensor(shape=(10, 32)).numpy()
SETTINGS: dict[str, Any] = {"max_tokens": 16, "buckets": (8, 16), "tokens_per_batch": 64}


def single() -> Any:
    signature = (tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.float32))
    return tf.data.Dataset.from_generator(lambda: zip(IDS, LABELS), output_signature=signature)


def slices(*parts: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(parts)


FORMS: dict[str, Any] = {
    "ragged": lambda: slices(ROWS, LABELS).batch(4),
    "padded": lambda: slices(PADDED, LABELS).batch(4),
    "padded_batch": lambda: single().padded_batch(4),
    "nested": lambda: slices({"ids": PADDED, "kind": np.ones((10, 2), "float32")}, LABELS).batch(4),
    "tuple": lambda: slices((PADDED, PADDED), LABELS).batch(4).map(lambda x, y: (x, y)),
}


def parts(batches: Any) -> list[tuple[Any, Any, Any]]:
    return [(tf.nest.flatten(x)[0].numpy(), np.asarray(y), np.asarray(w)) for x, y, w in batches]


@pytest.mark.parametrize("form", [*FORMS, "single"])
def test_every_token_comes_once_in_fixed_shapes_with_the_weights_that_there_were(form: str) -> None:
    made = single() if form == "single" else FORMS[form]()
    dataset, report = sequence_batches(made, **SETTINGS, **({"batched": False} if form == "single" else {}))
    seen = parts(dataset)
    assert {ids.shape for ids, _, _ in seen} == {(8, 8), (4, 16)}
    tokens = [
        token for ids, _, weights in seen for row, weight in zip(ids, weights) if weight for token in row if token
    ]
    assert sorted(tokens) == sorted(np.concatenate(IDS))
    for number, length in enumerate(LENGTHS):
        own = [weight for _, labels, weights in seen for label, weight in zip(labels, weights) if label == number]
        assert sum(own) == pytest.approx(1.0) and sum(weight > 0 for weight in own) == -(-length // 16)
    assert report.batches == len(seen) and report.sequences == 10 and report.complete
    known = int(dataset.cardinality())
    assert known == (tf.data.UNKNOWN_CARDINALITY if "single" in form or form == "padded_batch" else len(seen))


def test_labels_and_weights_of_tokens_are_split_along() -> None:
    weights = np.linspace(1, 2, 10).astype("float32")
    data = slices(ROWS, ROWS * 2, weights).batch(4)
    dataset, _ = sequence_batches(data, **SETTINGS)
    total = 0.0
    for ids, labels, weight in parts(dataset):
        assert labels.shape == weight.shape == ids.shape
        np.testing.assert_array_equal(labels[weight > 0], 2 * ids[weight > 0])
        assert not weight[ids == 0].any()
        total += float(weight.sum())
    assert total == pytest.approx(float(np.dot(weights, LENGTHS)), rel=1e-5)


def test_lengths_of_the_data_choose_the_buckets_and_the_batch_stays() -> None:
    dataset, report = sequence_batches(slices(PADDED, LABELS).batch(4), buckets=2)
    assert report.boundaries == (8, 32) and report.batch_sizes == (16, 4)
    assert report.tokens == sum(LENGTHS) and report.tokens_before == 10 * 32 and report.shapes_before == 2
    assert [ids.shape for ids, _, _ in parts(dataset)] == [(4, 32), (16, 8), (4, 32)]


def token_model() -> Any:
    """Its loss of a token depends on the token alone."""
    keras.utils.set_random_seed(5)
    made = keras.Sequential([keras.layers.Embedding(500, 4), keras.layers.Dense(6)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.0), loss, jit_compile=False)
    return made


def test_the_weighted_loss_of_an_epoch_is_the_same_token_by_token() -> None:
    labels = tf.ragged.map_flat_values(lambda ids: ids % 6, ROWS)
    weights = np.linspace(1, 2, 10).astype("float32")
    whole = np.float32(PADDED > 0) * weights[:, None]
    model = token_model()
    plain = float(model.test_on_batch(PADDED, labels.to_tensor(shape=(10, 32)), sample_weight=whole)) * PADDED.size
    dataset, _ = sequence_batches(slices(ROWS, labels, weights).batch(4), **SETTINGS)
    total = 0.0
    for x, y, weight in dataset:
        model.reset_metrics()
        result = model.test_on_batch(x, y, sample_weight=weight)
        total += float(result) * int(tf.size(y))
    assert total == pytest.approx(plain, rel=1e-5)
    model.fit(dataset, verbose=0)  # and fit takes it as it is


def test_the_weighted_loss_of_an_epoch_is_the_same_for_labels_of_sequences() -> None:
    keras.utils.set_random_seed(5)
    # A prediction that is the same for each piece of a sequence: the label decides the loss.
    model = keras.Sequential(
        [keras.layers.Embedding(500, 4, embeddings_initializer="ones"), keras.layers.GlobalMaxPooling1D(),
         keras.layers.Dense(1)]
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    plain = model.fit(PADDED, LABELS, batch_size=4, verbose=0).history["loss"][0] * 10
    dataset, report = sequence_batches(slices(PADDED, LABELS).batch(4), **SETTINGS)
    rows = sum(len(weights) for _, _, weights in parts(dataset))
    assert model.fit(dataset, verbose=0).history["loss"][0] * rows == pytest.approx(plain, rel=1e-5)
    assert report.shapes == 2


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    data = slices(ROWS, LABELS)
    with pytest.raises(ConfigError, match="a sequence of 31"):
        sequence_batches(data.batch(4), buckets=(8, 16))
    with pytest.raises(ConfigError, match="no tokens_per_batch"):
        sequence_batches(data)
    with pytest.raises(ConfigError, match="say batched=True"):
        sequence_batches(single())
    with pytest.raises(ConfigError, match=r"elements \(features, labels\)"):
        sequence_batches(slices(ROWS).batch(4))
    with pytest.raises(ConfigError, match="runs along the sequence"):
        sequence_batches(slices(LABELS, LABELS).batch(4))


def run_fit(changes: dict[str, Any], **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """What ``tfvolta run`` makes of the arguments of a fit."""
    config = load_config(sequences={"max_tokens": 16, **changes}, run={"strict": False})
    session, model = Session(config, stack=STACK, origin=Origin(record=False)), token_model()
    return session, fit_arguments(session, bridge_for(model), model, {"x": None, "y": None, **arguments})


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x": PADDED, "y": LABELS, "steps_per_epoch": 2}, "steps_per_epoch counts"),
        ({"x": slices(ROWS, LABELS).batch(4).repeat()}, "has no end"),
        ({"x": iter([(PADDED, LABELS)])}, "of kind list_iterator"),
    ],
)
def test_data_that_cannot_be_batched_again_stay_and_say_why(arguments: Any, reason: str) -> None:
    session, given = run_fit({}, **arguments)
    assert given["x"] is arguments["x"]
    assert reason in session.context.saved["sequences"].message


def test_arrays_become_such_batches() -> None:
    _, given = run_fit({"buckets": [16]}, x=PADDED, y=PADDED % 6, batch_size=4, shuffle=False)
    assert sequence_data.noted(given["x"]).sequences == 10
    assert {ids.shape for ids, _, _ in parts(given["x"])} == {(4, 16)} and given["y"] is None


SCRIPT = """
import os, numpy as np
from tests.tensorflow.test_sequences import PADDED, token_model
token_model().fit(PADDED, PADDED % 6, batch_size=4, verbose=0)
"""


def test_an_untouched_script_is_served_and_the_padding_is_in_its_evidence(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    config = load_config(sequences={"max_tokens": 16, "buckets": 2}, run={"directory": str(tmp_path / "runs")})
    session = Session(config, stack=STACK, origin=Origin(script=str(script)))
    ScriptRun(session).run(str(script), [])
    session.close()
    (folder,) = (tmp_path / "runs").iterdir()
    outcome = read(folder).outcomes["sequences"]
    assert outcome.status is Status.APPLIED and outcome.observed["shapes"] == 2
    assert outcome.observed["padding_after"] < outcome.observed["padding_before"]
    assert "padding is" in outcome.message


def test_what_cannot_be_planned_says_so_at_once() -> None:
    config = load_config(
        sequences={"max_tokens": 32, "buckets": [8, 16]}, xla={"drop_remainder": True}, run={"strict": False}
    )
    with pytest.raises(PlanError) as caught:
        Session(config, stack=STACK, origin=Origin(record=False))
    assert {problem.where.split(":")[0] for problem in caught.value.problems} >= {"sequences.buckets"}
    assert "xla.drop_remainder" in str(caught.value)
