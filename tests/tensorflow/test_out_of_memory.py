"""Memory that runs out in the middle of fit: what is said, and the state that is left, against plain Keras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, keras, tf
from tests.tensorflow.memory_models import HUGE, Greedy, differing, greedy_model, lengths_data
from tfvolta.callbacks import Checkpoint, OutOfMemory
from tfvolta.checkpoint.store import read_manifest

GOOD = (5, 7, 9)
LENGTHS = (*GOOD, 12, 6)


def failed(model: Any, data: Any, *callbacks: Any, **arguments: Any) -> Any:
    """The error that a fit ends with."""
    with pytest.raises(tf.errors.ResourceExhaustedError) as raised:
        model.fit(data, verbose=0, callbacks=list(callbacks), **arguments)
    return raised.value


def optimizers() -> dict[str, Any]:
    found: dict[str, Any] = {
        "adam": lambda: keras.optimizers.Adam(0.01),
        "average of the weights": lambda: keras.optimizers.SGD(0.01, momentum=0.9, use_ema=True, ema_momentum=0.5),
        "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)),
    }
    if not KERAS3:
        found["legacy"] = lambda: keras.optimizers.legacy.Adam(0.01)
    return found


@pytest.mark.parametrize("name", optimizers())
def test_the_state_is_that_of_the_good_batches_alone(name: str) -> None:
    make, first = optimizers()[name], name == "schedule"
    model, plain = greedy_model(make(), first), greedy_model(make(), first)
    plain.fit(lengths_data(*GOOD), verbose=0)
    callback = OutOfMemory()
    failed(model, lengths_data(*LENGTHS), callback)
    assert int(model.optimizer.iterations) == 3
    # At its end a fit gives the weights their average, where one is kept.
    unlike = [each for each in differing(model, plain) if "average" not in name or each.startswith("optimizer")]
    assert unlike == []
    assert callback.record is not None and callback.record.restored


def test_plain_keras_leaves_a_count_that_is_one_too_high() -> None:
    """What the guard is for; if this fails, Keras has mended it."""
    model = greedy_model()
    with pytest.raises(tf.errors.ResourceExhaustedError):
        model.fit(lengths_data(*LENGTHS), verbose=0)
    assert int(model.optimizer.iterations) == 4


def test_the_error_names_epoch_batch_shapes_and_remedies() -> None:
    error = failed(greedy_model(), lengths_data(*LENGTHS), OutOfMemory())
    text = str(error)
    for part in ("epoch 0, batch 3", "x (4, 12, 2)", "y (4, 1)", "batch size 4", "256 TiB", "batch 2 of epoch 0"):
        assert part in text
    assert "fit.batch_size: 2 with communication.reduce_every: 2" in text
    assert "by length" in text and "memory.on_oom: split" in text
    assert isinstance(error.original, tf.errors.ResourceExhaustedError) and error.original is not error
    assert error.__cause__ is error.original
    assert "OOM when allocating" in text and "OOM when allocating" in str(error.original)


def test_fit_can_be_called_again_and_trains_as_if_nothing_had_happened() -> None:
    model, plain = greedy_model(dropout=KERAS3), greedy_model(dropout=KERAS3)
    for each in (model, plain):
        if each is model:
            failed(each, lengths_data(*LENGTHS), OutOfMemory())
        else:
            each.fit(lengths_data(*GOOD), verbose=0)
        each.fit(lengths_data(6, 8), verbose=0, callbacks=[OutOfMemory()] if each is model else [])
    assert differing(model, plain) == []


def test_a_later_epoch_counts_its_own_batches(tmp_path: Path) -> None:
    model = greedy_model()
    seen: list[int] = []

    def batches() -> Any:
        seen.append(1)
        for length in (5, 12 if len(seen) == 3 else 6):
            yield np.ones((2, length, 2), "float32"), np.ones((2, 1), "float32")

    spec = (tf.TensorSpec((2, None, 2)), tf.TensorSpec((2, 1)))
    data = tf.data.Dataset.from_generator(batches, output_signature=spec)
    data = data.apply(tf.data.experimental.assert_cardinality(2))
    error = failed(model, data, OutOfMemory(directory=str(tmp_path)), epochs=4)
    assert "epoch 2, batch 1" in str(error)
    manifest = read_manifest(Path(error.record.checkpoint))
    assert (manifest.epoch, manifest.batch, manifest.steps) == (2, 1, 5)


def test_a_checkpoint_has_the_state_of_the_last_good_batch(tmp_path: Path) -> None:
    model, plain = greedy_model(dropout=KERAS3), greedy_model(dropout=KERAS3)
    error = failed(model, lengths_data(*LENGTHS), OutOfMemory(directory=str(tmp_path)))
    manifest = read_manifest(Path(error.record.checkpoint))
    assert (manifest.epoch, manifest.batch, manifest.steps) == (0, 3, 3)
    plain.fit(lengths_data(*GOOD, 8, 6), verbose=0)
    again = greedy_model(dropout=KERAS3)
    again.fit(lengths_data(*GOOD, 8, 6), verbose=0, callbacks=[Checkpoint(str(tmp_path))])
    assert int(again.optimizer.iterations) == 5
    assert [each for each in differing(again, plain) if "metrics" not in each] == []


def test_the_fits_own_checkpoints_take_the_state(tmp_path: Path) -> None:
    saves = Checkpoint(str(tmp_path), every_steps=2)
    error = failed(greedy_model(), lengths_data(*LENGTHS), saves, OutOfMemory())
    assert Path(error.record.checkpoint).parent == tmp_path / "fit-00"
    assert read_manifest(Path(error.record.checkpoint)).steps == 3


def test_a_config_carries_it_into_the_evidence(tmp_path: Path) -> None:
    config = tfvolta.load_config(memory={"on_oom": "report"}, run={"directory": str(tmp_path)})
    model = greedy_model()
    callbacks = tfvolta.build_callbacks(config, model)
    error = failed(model, lengths_data(*LENGTHS), *callbacks)
    path = next(tmp_path.glob("*/evidence.json"))
    evidence = json.loads(path.read_text())
    record = evidence["measurements"]["out_of_memory"]
    assert record["input_shapes"]["x"] == [4, 12, 2] and record["batch"] == 3
    assert record["asked_bytes"] == 4 * HUGE**2 and record["tensor_shape"] == [HUGE, HUGE]
    assert record["largest_variables"][0]["size_bytes"] >= 8
    assert record["devices"] == {}  # no GPU, and no zeros for one
    assert evidence["outcomes"]["on_oom"]["status"] == "APPLIED"
    assert Path(record["checkpoint"]).is_relative_to(path.parent / "out_of_memory")
    assert error.record.restored


def test_a_call_of_several_batches_counts_those_that_were_trained() -> None:
    model, plain = (greedy_model(dropout=KERAS3, steps_per_execution=number) for number in (3, 1))
    plain.fit(lengths_data(5, 7, 9, 6, 8), verbose=0)
    error = failed(model, lengths_data(5, 7, 9, 6, 8, 12), OutOfMemory())
    assert "epoch 0, batch 5" in str(error) and "x (4, 12, 2)" in str(error)
    assert int(model.optimizer.iterations) == 5
    names = [each for each in differing(model, plain) if each.startswith("optimizer")]
    assert [each for each in names if "iteration" not in each] == []


def test_a_step_without_a_graph_is_guarded_too() -> None:
    model, plain = (greedy_model(dropout=KERAS3, run_eagerly=True) for _ in range(2))
    plain.fit(lengths_data(*GOOD), verbose=0)
    error = failed(model, lengths_data(*LENGTHS), OutOfMemory())
    assert "batch 3" in str(error) and "x (4, 12, 2)" in str(error)
    assert int(model.optimizer.iterations) == 3
    assert [each for each in differing(model, plain) if "metrics" not in each and "counter" not in each] == []


def test_a_layer_that_draws_twice_from_one_seed_has_it_put_back() -> None:
    """The state of a seed is written between the two draws, which no order of writes can put off."""

    def make() -> Any:
        keras.utils.set_random_seed(1)
        inputs = keras.Input((None, 2))
        drop = keras.layers.Dropout(0.5, seed=7)
        hidden = drop(keras.layers.Dense(4)(drop(inputs)))
        outputs = keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(Greedy()(hidden)))
        model = keras.Model(inputs, outputs)
        model.compile("adam", "mse", jit_compile=False)
        return model

    model, plain = make(), make()
    plain.fit(lengths_data(*GOOD), verbose=0)
    error = failed(model, lengths_data(*LENGTHS), OutOfMemory())
    assert differing(model, plain) == [] and error.record.restored
    assert bool(error.record.put_back) is KERAS3  # Keras 2's kernels keep no state in variables


def test_an_update_that_runs_out_of_memory_is_not_called_whole(tmp_path: Path) -> None:
    """A part of the weights is updated and a part is not: nobody can put that right, and it is said."""
    steps = tf.Variable(0, trainable=False)

    class HalfMade(keras.optimizers.SGD):  # type: ignore[misc]
        def update_step(self, gradient: Any, variable: Any, *arguments: Any) -> None:
            super().update_step(gradient, variable, *arguments)
            if len(variable.shape) == 1:  # a bias
                with tf.control_dependencies([steps.assign_add(1)]):
                    size = tf.where(steps > 5, HUGE, 1)  # a few biases a step: in the second
                    steps.assign_add(tf.cast(tf.reduce_sum(tf.random.uniform([size, size])) * 0.0, tf.int32))

    model = greedy_model(HalfMade(0.01))
    error = failed(model, lengths_data(5, 6, 7, 8), OutOfMemory(directory=str(tmp_path)))
    assert not error.record.restored and "a part is not" in str(error)
    assert not error.record.checkpoint and not list(tmp_path.iterdir())


def test_a_model_with_a_train_step_of_its_own() -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.greedy, self.dense = Greedy(), keras.layers.Dense(1)
            self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

        def call(self, inputs: Any) -> Any:
            return self.dense(tf.reduce_mean(self.greedy(inputs), 1))

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            self.calls.assign_add(1.0)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    model = Own()
    model.compile("sgd", jit_compile=False)
    error = failed(model, lengths_data(*LENGTHS), OutOfMemory())
    assert int(model.optimizer.iterations) == 3 and float(tf.convert_to_tensor(model.calls)) == 3.0
    assert error.record.restored


def test_validation_that_runs_out_of_memory_is_named_as_such() -> None:
    model = greedy_model()
    error = failed(model, lengths_data(*GOOD), OutOfMemory(), validation_data=lengths_data(5, 12))
    assert "epoch 0, validation batch 1" in str(error) and "validation_batch_size=2" in str(error)
    assert int(model.optimizer.iterations) == 3
    model.fit(lengths_data(5), verbose=0)  # and nothing is left of the guard


def test_two_replicas_keep_the_state_of_the_last_good_batch() -> None:
    command = [sys.executable, "-m", "tests.tensorflow.memory_replicas"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["restored"] and found["counts"] == [3, 3] and found["difference"] < 1e-6
    assert "epoch 0, batch 3" in found["text"] and "x (2, 12, 2)" in found["text"]
    assert "memory.on_oom: split" not in found["text"]


def test_other_errors_stay_what_they_are() -> None:
    model = greedy_model()
    data = lengths_data(5).map(lambda x, y: (tf.debugging.check_numerics(x / 0.0, "not finite"), y))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        model.fit(data, verbose=0, callbacks=[OutOfMemory()])


def test_a_good_fit_is_that_of_plain_keras() -> None:
    model, plain = greedy_model(), greedy_model()
    first = model.fit(lengths_data(5, 6, 7), verbose=0, epochs=2, callbacks=[OutOfMemory()])
    second = plain.fit(lengths_data(5, 6, 7), verbose=0, epochs=2)
    assert np.allclose(first.history["loss"], second.history["loss"], rtol=1e-6)
    assert differing(model, plain) == []
    assert type(model.train_function).__name__ != "StepGuard"


@pytest.mark.parametrize("jit", [False, True])
def test_a_model_that_was_traced_before_is_guarded(jit: bool) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=jit)
    x = np.ones((8, 2), "float32")
    model.fit(x, x[:, :1], verbose=0)
    callback = OutOfMemory()
    model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
    assert callback.session.endings["on_oom"].outcome.status.value == "APPLIED"
    assert int(model.optimizer.iterations) == 3
