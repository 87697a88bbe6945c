"""Keras 3: a model saved during or after a retrofitted fit loads in plain Keras and resumes where it was."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings, LossScaleState

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)
SCRIPT = pathlib.Path(__file__).parent / "keras3_plain_resume.py"


def data() -> tuple[Any, Any]:
    x = np.random.RandomState(0).randn(64, 8).astype("float32")
    return x, (x[:, 0] > 0).astype("int32")


def functional() -> Any:
    inputs = keras.Input((8,))
    x = layers.BatchNormalization()(layers.Dense(16, activation="relu")(inputs))
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(x))


def sequential() -> Any:
    hidden, output = layers.Dense(16, activation="relu"), layers.Dense(2, activation="softmax")
    return keras.Sequential([keras.Input((8,)), hidden, output])


def nested() -> Any:
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(sequential()(inputs)))


KINDS = {"functional": functional, "sequential": sequential, "nested": nested}


class Retrofits(keras.callbacks.Callback):
    """What a mixed-precision callback does."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__()
        self.settings = settings or LossScaleSettings(initial=1024.0, growth_steps=6)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        BRIDGE.retrofit(model, "mixed_float16")
        BRIDGE.install_loss_scale(model, self.settings)


def compiled(kind: str) -> Any:
    keras.utils.set_random_seed(3)
    model = KINDS[kind]()
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    return model


def fit(model: Any, epochs: int, *callbacks: Any) -> None:
    x, y = data()
    model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, shuffle=False, callbacks=list(callbacks))


def resume_in_plain_keras(path: pathlib.Path, tmp_path: pathlib.Path) -> tuple[dict[str, Any], list[Any]]:
    """What a process without tfvolta finds in a file, and the weights after two more epochs there."""
    out = str(tmp_path / "plain")
    x, y = data()
    np.save(out + ".x.npy", x)
    np.save(out + ".y.npy", y)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(path), out],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(out + ".npz") as stored:
        weights = [stored[name] for name in stored.files]
    return json.loads(done.stdout.strip().splitlines()[-1]), weights


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoint_during_and_file_after_a_fit_resume_in_plain_keras(kind: str, tmp_path: pathlib.Path) -> None:
    """Two epochs saved by ModelCheckpoint, two more in plain Keras: the weights of four epochs in one run."""
    whole = compiled(kind)
    fit(whole, 4, Retrofits())
    model = compiled(kind)
    fit(model, 2, keras.callbacks.ModelCheckpoint(str(tmp_path / "epoch{epoch}.keras")), Retrofits())
    model.save(tmp_path / "after.keras")
    found, weights = resume_in_plain_keras(tmp_path / "epoch2.keras", tmp_path)
    assert found["class"] == "LossScaleOptimizer" and found["module"] == "keras" and not found["tfvolta"]
    assert found["warnings"] == [] and "mixed_float16" in found["policies"]
    assert (found["iterations"], found["iterations_after"]) == (8, 16)
    assert (found["scale"], found["counter"], found["growth_steps"]) == (2048.0, 2, 6)  # doubled once, at step 6
    assert found["scale_after"] == BRIDGE.loss_scale(whole.optimizer).scale == 4096.0
    for left, right in zip(whole.get_weights(), weights):
        np.testing.assert_array_equal(left, right)
    loaded = keras.models.load_model(tmp_path / "after.keras")
    assert BRIDGE.loss_scale(loaded.optimizer) == LossScaleState(2048.0, True, 2)


def test_a_fixed_scale_is_kept_by_plain_keras(tmp_path: pathlib.Path) -> None:
    model = compiled("sequential")
    fit(model, 2, Retrofits(LossScaleSettings(fixed=512.0)))
    model.save(tmp_path / "fixed.keras")
    found, _ = resume_in_plain_keras(tmp_path / "fixed.keras", tmp_path)
    assert found["scale"] == found["scale_after"] == 512.0 and found["iterations_after"] == 16
    loaded = keras.models.load_model(tmp_path / "fixed.keras")
    assert BRIDGE.loss_scale(loaded.optimizer) == LossScaleState(512.0, dynamic=False)


def test_an_earlier_hdf5_file_does_not_cost_the_optimizer(tmp_path: pathlib.Path) -> None:
    """Saving HDF5 pops the optimiser from the arguments that the next .keras file is written from."""
    model = compiled("functional")
    fit(model, 2, Retrofits())
    model.save(tmp_path / "first.h5")
    model.save(tmp_path / "second.keras")
    x, _ = data()
    legacy = keras.models.load_model(tmp_path / "first.h5")
    assert type(legacy.optimizer) is keras.optimizers.LossScaleOptimizer
    np.testing.assert_array_equal(legacy.predict(x, verbose=0), model.predict(x, verbose=0))
    loaded = keras.models.load_model(tmp_path / "second.keras")
    assert int(loaded.optimizer.iterations) == 8 and BRIDGE.loss_scale(loaded.optimizer).scale == 2048.0


def test_weights_files_restore_the_optimizer_of_a_model_prepared_alike(tmp_path: pathlib.Path) -> None:
    whole, model, fresh = compiled("functional"), compiled("functional"), compiled("functional")
    fit(whole, 4, Retrofits())
    fit(model, 2, Retrofits())
    model.save_weights(tmp_path / "w.weights.h5")
    Retrofits().set_model(fresh)
    fresh.load_weights(tmp_path / "w.weights.h5")
    assert BRIDGE.loss_scale(fresh.optimizer) == LossScaleState(2048.0, True, 2)
    fit(fresh, 2, Retrofits())
    for left, right in zip(whole.get_weights(), fresh.get_weights()):
        np.testing.assert_array_equal(left, right)
    plain = compiled("functional")
    plain.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(plain.get_weights()[0], model.get_weights()[0])


def test_backup_and_restore_resumes(tmp_path: pathlib.Path) -> None:
    class Interrupts(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise KeyboardInterrupt

    whole, broken, resumed = compiled("functional"), compiled("functional"), compiled("functional")
    fit(whole, 4, Retrofits())
    with pytest.raises(KeyboardInterrupt):
        fit(broken, 4, Retrofits(), keras.callbacks.BackupAndRestore(str(tmp_path)), Interrupts())
    fit(resumed, 4, Retrofits(), keras.callbacks.BackupAndRestore(str(tmp_path)))
    assert int(resumed.optimizer.iterations) == int(whole.optimizer.iterations) == 16
    for left, right in zip(whole.get_weights(), resumed.get_weights()):
        np.testing.assert_array_equal(left, right)


def test_export_serves_float32(tmp_path: pathlib.Path) -> None:
    model = compiled("functional")
    fit(model, 1, Retrofits())
    model.export(str(tmp_path / "served"), verbose=False)
    x, _ = data()
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    served = loaded.serve(x)
    assert served.dtype == tf.float32
    np.testing.assert_allclose(served.numpy(), model.predict(x, verbose=0), atol=1e-3)


def test_tensorflow_checkpoint_restores_slots_and_scale(tmp_path: pathlib.Path) -> None:
    model, fresh = compiled("functional"), compiled("functional")
    fit(model, 2, Retrofits())
    saved = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "checkpoint"))
    Retrofits().set_model(fresh)
    tf.train.Checkpoint(model=fresh, optimizer=fresh.optimizer).restore(saved).assert_existing_objects_matched()
    assert BRIDGE.loss_scale(fresh.optimizer) == LossScaleState(2048.0, True, 2)
    assert int(fresh.optimizer.iterations) == 8
