"""A training that crashed and was started again equals one that did not, on every kind of data."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow.checkpoint_models import (
    BATCH,
    DATA,
    EPOCHS,
    STEPS,
    TOTAL,
    CrashError,
    Interrupt,
    X,
    Y,
    checkpoints,
    compile_model,
    compiled,
    difference,
    fit,
    state,
    steps,
    unbuilt,
)
from tfvolta.callbacks import Checkpoint
from tfvolta.checkpoint.store import Store, read_manifest
from tfvolta.config import load_config
from tfvolta.errors import CheckpointWarning

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Data sets, which are made before the model, take the global seed too."""
    keras.utils.set_random_seed(5)


def trained(folder: Path, data: dict[str, Any], make: Callable[..., Any] = compiled, *callbacks: Any) -> Any:
    """A training with checkpoints; the model, whether it crashed or not."""
    model = make()
    with contextlib.suppress(CrashError):
        fit(model, data, Checkpoint(str(folder), every_steps=2), *callbacks)
    return model


def resumed(folder: Path, data: Callable[[], dict[str, Any]], crash: Interrupt, make: Any = compiled) -> Any:
    """A training that crashed and went on in a new model."""
    trained(folder, data(), make, crash)
    return trained(folder, data(), make)


@functools.cache
def uninterrupted(kind: str) -> tuple[dict[str, Any], Any]:
    """State and history of a training without a crash."""
    with tempfile.TemporaryDirectory() as folder:
        model = trained(Path(folder), DATA[kind]())
    return state(model), model.history


@pytest.mark.parametrize("kind", DATA)
def test_going_on_in_mid_epoch_equals_a_training_without_a_crash(kind: str, tmp_path: Path) -> None:
    whole, history = uninterrupted(kind)
    model = resumed(tmp_path, DATA[kind], Interrupt(1, 5))
    assert steps(model) == (TOTAL if kind != "parts of a pass" else TOTAL - EPOCHS)
    assert difference(model, whole) == 0.0
    assert model.history.epoch == history.epoch == list(range(EPOCHS))
    for name, values in history.history.items():
        assert model.history.history[name] == pytest.approx(values, abs=1e-6), name


@pytest.mark.parametrize(("kind", "at"), [("arrays", (1, 7)), ("generator", (0, 7)), ("arrays", (2, 7))])
def test_after_the_last_batch_of_an_epoch_nothing_is_trained_twice(
    kind: str, at: tuple[int, int], tmp_path: Path
) -> None:
    model = resumed(tmp_path, DATA[kind], Interrupt(*at))
    assert steps(model) == TOTAL


def test_the_last_checkpoint_of_an_epoch_of_unknown_length_ends_it(tmp_path: Path) -> None:
    """The state after the last batch is saved before anybody knows that it was the last one."""

    class Falls(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise CrashError

    trained(tmp_path, DATA["generator"](), compiled, Falls())
    assert read_manifest(Store(tmp_path / "fit-00", 3).checkpoints()[0]).batch == STEPS
    model = trained(tmp_path, DATA["generator"]())
    assert steps(model) == TOTAL
    assert difference(model, uninterrupted("generator")[0], "model", "optimizer") == 0.0


def test_several_crashes_one_after_another(tmp_path: Path) -> None:
    for epoch, batch in ((0, 3), (0, 6), (2, 1)):
        trained(tmp_path, DATA["seeded"](), compiled, Interrupt(epoch, batch))
    model = trained(tmp_path, DATA["seeded"]())
    assert steps(model) == TOTAL
    assert difference(model, uninterrupted("seeded")[0]) == 0.0


def test_a_model_that_is_not_built_before_its_first_batch(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", DATA["arrays"](), unbuilt)
    model = resumed(tmp_path / "crashed", DATA["arrays"], Interrupt(1, 5), unbuilt)
    assert steps(model) == TOTAL
    assert difference(model, whole) == 0.0


def scaled(tmp_path: Path, data: dict[str, Any], *callbacks: Any) -> Any:
    """A training in mixed precision under a config, whose loss scale grows every third step."""
    config = load_config(
        run={"directory": str(tmp_path / "runs"), "seed": 5},
        mixed_precision={"policy": "mixed_float16", "loss_scale": {"initial": 8.0, "growth_steps": 3}},
        checkpoint={"directory": str(tmp_path / "checkpoints"), "every_steps": 2},
    )
    model = compiled()
    with contextlib.suppress(CrashError):
        fit(model, data, *tfvolta.build_callbacks(config), *callbacks)
    return model


def test_the_loss_scale_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = scaled(tmp_path / "whole", DATA["arrays"]())
    scaled(tmp_path / "crashed", DATA["arrays"](), Interrupt(1, 5))
    model = scaled(tmp_path / "crashed", DATA["arrays"]())
    assert steps(model) == TOTAL
    # Keras 2 numbers the wrapper's and the inner optimiser's variables differently before and after the first step.
    assert difference(model, whole) == 0.0
    bridge = tfvolta.bridge.bridge_for(model)
    assert bridge.loss_scale(model.optimizer) == bridge.loss_scale(whole.optimizer)
    assert bridge.loss_scale(model.optimizer).scale == 8.0 * 2 ** (TOTAL // 3)


def test_several_batches_in_one_call(tmp_path: Path) -> None:
    def made() -> Any:
        return compiled(steps_per_execution=3)

    whole = trained(tmp_path / "whole", DATA["seeded"](), made)
    model = resumed(tmp_path / "crashed", DATA["seeded"], Interrupt(1, 5), made)
    assert steps(model) == TOTAL
    assert difference(model, whole) == 0.0


@pytest.mark.skipif(KERAS3, reason="Keras 3 has no legacy optimisers")
def test_an_optimizer_of_the_legacy_family_and_its_changed_rate(tmp_path: Path) -> None:
    class Halve(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.lr = self.model.optimizer.lr / 2

    def made() -> Any:
        return compiled(optimizer=keras.optimizers.legacy.Adam(0.01))

    whole = trained(tmp_path / "whole", DATA["seeded"](), made, Halve())
    trained(tmp_path / "crashed", DATA["seeded"](), made, Halve(), Interrupt(1, 5))
    model = trained(tmp_path / "crashed", DATA["seeded"](), made, Halve())
    assert float(model.optimizer.lr) == pytest.approx(0.01 / 2**EPOCHS)
    assert difference(model, whole) == 0.0


def test_what_callbacks_change_after_a_batch_is_in_the_checkpoint(tmp_path: Path) -> None:
    class Decay(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            rate = self.model.optimizer.learning_rate
            rate.assign(rate * 0.9)

    whole = trained(tmp_path / "whole", DATA["arrays"](), compiled, Decay())
    trained(tmp_path / "crashed", DATA["arrays"](), compiled, Decay(), Interrupt(1, 5))
    model = trained(tmp_path / "crashed", DATA["arrays"](), compiled, Decay())
    assert difference(model, whole) == 0.0


@pytest.fixture
def no_global_seed() -> Any:
    yield tf.random.set_seed(None)
    keras.utils.set_random_seed(0)


def unseeded() -> Any:
    """Each row's number, so that it shows which rows were seen."""
    tf.random.set_seed(None)
    numbers = np.arange(len(X), dtype="float32")[:, None]
    return {"x": tf.data.Dataset.from_tensor_slices((X, numbers)).shuffle(len(X)).batch(BATCH)}


class Seen(keras.metrics.Metric):  # type: ignore[misc]
    """How often each row was a target in an epoch."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.counts = self.add_weight(name="counts", shape=(len(X),), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        rows_seen = tf.cast(tf.reshape(y_true, [-1]), tf.int32)
        self.counts.assign_add(tf.reduce_sum(tf.one_hot(rows_seen, len(X)), axis=0))

    def reset_state(self) -> None:
        self.counts.assign(tf.zeros(len(X)))

    def result(self) -> Any:
        return tf.reduce_max(self.counts) - tf.reduce_min(self.counts)


def test_rows_shuffled_without_a_seed_come_once_each(tmp_path: Path, no_global_seed: None) -> None:
    """The state of the data's iterator is in the checkpoint."""

    def made() -> Any:
        return compiled(metrics=[Seen()])

    trained(tmp_path, unseeded(), made, Interrupt(1, 5))
    assert read_manifest(Store(tmp_path / "fit-00", 3).checkpoints()[0]).iterator
    model = trained(tmp_path, unseeded(), made)
    assert steps(model) == TOTAL
    assert model.history.history["seen"] == [0.0] * EPOCHS


def test_arrays_shuffled_without_a_seed_are_said_to_be_inexact(tmp_path: Path, no_global_seed: None) -> None:
    def made() -> Any:
        model = compiled()
        tf.random.set_seed(None)
        return model

    trained(tmp_path, DATA["arrays"](), made, Interrupt(1, 5))
    with pytest.warns(CheckpointWarning, match="shuffled without a seed"):
        model = trained(tmp_path, DATA["arrays"](), made)
    assert steps(model) == TOTAL


def test_more_epochs_than_before_go_on(tmp_path: Path) -> None:
    first = compiled()
    fit(first, DATA["seeded"](), Checkpoint(str(tmp_path)), epochs=2)
    model = compiled()
    fit(model, DATA["seeded"](), Checkpoint(str(tmp_path)))
    assert steps(model) == TOTAL
    assert difference(model, uninterrupted("seeded")[0]) == 0.0
    assert len(model.history.history["loss"]) == EPOCHS


def test_a_finished_training_is_not_trained_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = trained(tmp_path, DATA["arrays"]())
    model = trained(tmp_path, DATA["arrays"]())
    assert steps(model) == TOTAL
    assert difference(model, whole, "model", "optimizer") == 0.0
    assert model.history.history == whole.history.history
    assert "nothing is left to train; checkpoint.resume: false trains anew" in capfd.readouterr().err
    # A later fit of the same model is not held up.
    model.fit(X, Y, batch_size=BATCH, verbose=0)
    assert steps(model) == TOTAL + STEPS


def test_a_training_that_stopped_early_is_finished(tmp_path: Path) -> None:
    class Enough(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    trained(tmp_path, DATA["arrays"](), compiled, Enough())
    assert steps(trained(tmp_path, DATA["arrays"](), compiled, Enough())) == STEPS


def test_the_weights_that_a_callback_puts_back_at_the_end_are_those_of_a_finished_training(tmp_path: Path) -> None:
    def stopping() -> Any:
        return keras.callbacks.EarlyStopping("loss", mode="max", patience=1, restore_best_weights=True)

    whole = trained(tmp_path, DATA["arrays"](), compiled, stopping())
    model = trained(tmp_path, DATA["arrays"](), compiled, stopping())
    assert len(whole.history.epoch) == 2  # the first epoch was the best
    assert difference(model, whole, "model") == 0.0


def test_two_fits_of_one_script_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    def script(*callbacks: Any) -> Any:
        ours = Checkpoint(str(tmp_path), every_steps=2)
        model = compiled()
        fit(model, DATA["arrays"](), ours, epochs=1)
        with contextlib.suppress(CrashError):
            fit(model, DATA["arrays"](), ours, *callbacks, epochs=2)
        return model

    script(Interrupt(1, 3))
    assert sorted(each.name for each in tmp_path.glob("fit-*")) == ["fit-00", "fit-01"]
    assert steps(script()) == 3 * STEPS


def test_beginning_anew_moves_the_former_checkpoints_aside(tmp_path: Path) -> None:
    trained(tmp_path, DATA["arrays"](), compiled, Interrupt(1, 5))
    model = compiled()
    with pytest.warns(CheckpointWarning, match=r"the checkpoints of an earlier run are in .*fit-00\.before-"):
        fit(model, DATA["arrays"](), Checkpoint(str(tmp_path), resume=False))
    assert steps(model) == TOTAL
    assert len(list(tmp_path.glob("fit-00.before-*/step-*"))) == 3


def test_epochs_of_another_length_go_on_at_the_same_share(tmp_path: Path) -> None:
    trained(tmp_path, DATA["arrays"](), compiled, Interrupt(1, 5))
    model = compiled()
    with pytest.warns(CheckpointWarning, match="An epoch had 8 batches when the checkpoint was saved and has 4 now"):
        fit(model, {"x": X, "y": Y, "batch_size": 2 * BATCH}, Checkpoint(str(tmp_path)))
    assert steps(model) == STEPS + 4 + 2 + 4  # 12 batches were saved; half of an epoch is left, and one more


def test_as_many_as_asked_are_kept_and_saved_when_asked(tmp_path: Path) -> None:
    model = compiled()
    fit(model, DATA["arrays"](), Checkpoint(str(tmp_path), every_steps=5, every_epochs=2, keep=20))
    assert checkpoints(tmp_path) == [f"step-{number:09d}" for number in (5, 10, 15, 16, 20, 24)]


def test_evidence_says_what_was_saved_and_where_training_went_on(tmp_path: Path) -> None:
    scaled(tmp_path, DATA["arrays"](), Interrupt(1, 5))
    scaled(tmp_path, DATA["arrays"]())
    from tfvolta.evidence.store import latest, read

    evidence = read(latest(tmp_path / "runs"))
    outcome = evidence.outcomes["checkpoint"]
    assert outcome.status == "APPLIED"
    assert "Went on from step 12 (epoch 2, batch 4)" in outcome.message
    assert "every 2 batches" in outcome.message
    measured: Any = evidence.measurements["checkpoint"]
    assert measured["resumed_at_step"] == 12
    assert measured["skipped_batches"] == (12 if STACK != "keras3" else 4)  # Keras 2 reads arrays through one iterator
    assert measured["written"] == 6
    assert measured["size_bytes"] > 0


@pytest.mark.timeout(600)
def test_two_replicas_go_on_as_one_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.tensorflow.checkpoint_replicas", str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=560)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-4000:]
    for kind, found in json.loads(lines[-1][len("RESULT ") :]).items():
        assert (found["replicas"], found["steps"]) == (2, TOTAL), kind
        assert found["difference"] <= 1e-6, kind
        assert found["loss"][0] == pytest.approx(found["loss"][1], rel=1e-5), kind
        assert found["scales"][0] == found["scales"][1] == 8.0 * 2 ** (TOTAL // 3), kind


def with_dropout() -> Any:
    keras.utils.set_random_seed(5)
    layers = keras.layers
    model = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.Dropout(0.5, name="drop"), layers.Dense(1)])
    compile_model(model)
    return model


@pytest.mark.parametrize("kept", [True] if KERAS3 else [True, False])
def test_random_layers_go_on_where_their_state_can_be_saved(kept: bool, tmp_path: Path) -> None:
    if kept and not KERAS3:
        keras.backend.experimental.enable_tf_random_generator()
    try:
        whole = trained(tmp_path / "whole", DATA["arrays"](), with_dropout)
        trained(tmp_path / "crashed", DATA["arrays"](), with_dropout, Interrupt(1, 5))
        model, callback = with_dropout(), Checkpoint(str(tmp_path / "crashed"))
        noted: list[str] = []
        callback.session.recorder.warned = noted.append  # type: ignore[method-assign]
        fit(model, DATA["arrays"](), callback)
    finally:
        if not KERAS3:
            keras.backend.experimental.disable_tf_random_generator()
    assert (difference(model, whole) == 0.0) == kept
    assert any("drop draws other random numbers" in text for text in noted) == (not kept)


def test_between_checkpoints_a_batch_costs_microseconds(tmp_path: Path) -> None:
    class Measures(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.seconds = min(self.measured() for _ in range(20))

        def measured(self) -> float:
            start = time.perf_counter()
            for batch in range(200):
                callback.on_train_batch_begin(batch)
                callback.on_train_batch_end(batch)
            return (time.perf_counter() - start) / 200

    callback, measures = Checkpoint(str(tmp_path)), Measures()
    fit(compiled(), DATA["arrays"](), callback, measures, epochs=1)
    assert measures.seconds < 20e-6
