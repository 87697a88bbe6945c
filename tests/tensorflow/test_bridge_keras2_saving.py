"""A Keras 2 model saved during or after a retrofitted fit loads in plain Keras and trains on as if never stopped."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tests.tensorflow import bridge_keras2_resume as resume
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.bridge.keras2_saving import restore_optimizer
from tfvolta.errors import BridgeError, TfvoltaWarning

BRIDGE = models.bridge()
SETTINGS = LossScaleSettings(initial=1024.0, growth_steps=5)  # doubles once in the eight steps before saving
EVERYTHING = {"during.weights", "after.weights", "after.checkpoint-1", "legacy.weights"}


class Retrofit(models.Arrange):
    """What the mixed-precision callback does in ``set_model``."""

    def __init__(self) -> None:
        super().__init__(self.apply)

    @staticmethod
    def apply(model: Any) -> None:
        """Retrofit and loss scaling."""
        BRIDGE.retrofit(model, "mixed_float16")
        BRIDGE.install_loss_scale(model, SETTINGS)


class SaveDuring(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Saves in the middle of a fit in formats that ModelCheckpoint does not offer."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves the second epoch."""
        if epoch == 1:
            self.model.save(os.path.join(self._folder, "during.saved_model"))
            self.model.save_weights(os.path.join(self._folder, "during.weights"))


class Crash(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Ends the process's fit in the third epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """As a pre-emption would."""
        if epoch == 2:
            raise KeyboardInterrupt


def _train_and_save(folder: str) -> dict[str, Any]:
    """Two epochs saved in every format, and two more: the uninterrupted run."""
    checkpoints = [
        keras.callbacks.ModelCheckpoint(os.path.join(folder, "during-{epoch:02d}" + end)) for end in (".keras", ".h5")
    ]
    model = resume.build(policy="float32")
    resume.train(model, 0, 2, [Retrofit(), *checkpoints, SaveDuring(folder)])
    for name in ("after.keras", "after.h5", "after.saved_model"):
        model.save(os.path.join(folder, name))
    for name in ("after.weights", "after.weights.h5"):
        model.save_weights(os.path.join(folder, name))
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(os.path.join(folder, "after.checkpoint"))
    found = {"new": resume.state(model)}
    resume.train(model, 2, 4)
    found["weights"] = model.get_weights()
    return found


def _train_and_save_legacy(folder: str) -> dict[str, Any]:
    """The same with an optimiser of the older design."""
    model = resume.build(legacy=True, policy="float32")
    resume.train(model, 0, 2, [Retrofit()])
    for name in ("legacy.h5", "legacy.saved_model"):
        model.save(os.path.join(folder, name))
    model.save_weights(os.path.join(folder, "legacy.weights"))
    found = {"legacy": resume.state(model)}
    resume.train(model, 2, 4)
    found["legacy_weights"] = model.get_weights()
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> dict[str, Any]:
    """States and final weights of the uninterrupted runs and of those that plain Keras resumed in another process."""
    folder = str(tmp_path_factory.mktemp("saved"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keras.utils.set_random_seed(3)
        found = _train_and_save(folder)
        keras.utils.set_random_seed(3)
        found.update(_train_and_save_legacy(folder))
        keras.utils.set_random_seed(3)
        model = resume.build(policy="float32")
        with pytest.raises(KeyboardInterrupt):
            backup = keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))
            resume.train(model, 0, 4, [Retrofit(), backup, Crash()])
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, str(pathlib.Path(resume.__file__)), folder],
        env=environment,
        cwd=folder,
        check=True,
        timeout=600,
        stderr=subprocess.DEVNULL,
    )
    resumed = json.loads((pathlib.Path(folder) / "resumed.json").read_text(encoding="utf-8"))
    assert resumed["tfvolta"] is False
    return {**found, "resumed": resumed, "folder": folder}


def _final(runs: dict[str, Any], name: str) -> list[Any]:
    with np.load(os.path.join(runs["folder"], name.replace(":", "_") + ".npz")) as file:
        return [file[key] for key in file.files]


@pytest.mark.parametrize("name", [name for name in resume.LOADERS if ":" not in name])
def test_plain_keras_resumes_with_the_same_optimizer_state_and_weights(runs: dict[str, Any], name: str) -> None:
    kind = "legacy" if name.startswith("legacy") else "new"
    before, after = runs[kind], runs["resumed"][name]
    assert before["iterations"] == 8
    assert before["scale"] == 2048.0
    exceptions = {"good_steps"} if name not in EVERYTHING else set()
    if name.endswith(".saved_model"):
        exceptions = set()  # its variables hold everything
    if name == "after.weights.h5":
        exceptions.add("scale")  # a file of weights has no config
    assert {key: value for key, value in after.items() if key not in exceptions} == {
        key: value for key, value in before.items() if key not in exceptions
    }
    if "good_steps" in exceptions:
        assert (before["good_steps"], after["good_steps"]) == (3, 0)  # what plain Keras has no place for
    for expected, weights in zip(runs["legacy_weights" if kind == "legacy" else "weights"], _final(runs, name)):
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)


def test_backup_and_restore_in_plain_keras(runs: dict[str, Any]) -> None:
    assert runs["resumed"]["backup"]["iterations"] == 16
    assert runs["resumed"]["backup"]["scale"] == 1024.0 * 2  # restored; plain Keras's growth interval is longer
    for expected, weights in zip(runs["weights"], _final(runs, "backup")):
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)


def test_weights_of_a_retrofitted_model_load_into_the_float32_script(runs: dict[str, Any]) -> None:
    state = runs["resumed"]["float32:after.weights"]
    assert (state["optimizer"], state["iterations"]) == ("Adam", 8)
    assert state["slots"] == runs["new"]["slots"]
    assert set(state["policies"]) == {"float32"}


def test_hdf5_alone_loses_what_the_warning_says(runs: dict[str, Any]) -> None:
    state = runs["resumed"]["plain:after.h5"]
    assert (state["optimizer"], state["iterations"], state["scale"]) == ("LossScaleOptimizerV3", 0, 2048.0)


def test_saving_hdf5_warns_once_and_names_the_format_that_works(tmp_path: Any) -> None:
    model = resume.build(policy="float32")
    Retrofit.apply(model)
    with pytest.warns(TfvoltaWarning, match=r"\.keras"):
        model.save(str(tmp_path / "a.h5"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TfvoltaWarning)
        model.save(str(tmp_path / "b.h5"))
        model.save(str(tmp_path / "c.keras"))
        model.save(str(tmp_path / "d"))


@pytest.mark.parametrize("name", ["after.h5", "after.saved_model", "legacy.h5"])
def test_restore_optimizer(runs: dict[str, Any], name: str) -> None:
    path = os.path.join(runs["folder"], name)
    model = keras.models.load_model(path)
    restore_optimizer(model, path)
    state = resume.state(model)
    expected = runs["legacy" if name.startswith("legacy") else "new"]
    assert (state["iterations"], state["slots"]) == (expected["iterations"], expected["slots"])


def test_restore_optimizer_refuses_another_optimizer(runs: dict[str, Any]) -> None:
    model = resume.build()
    model.compile(keras.optimizers.SGD(), "mse")
    with pytest.raises(BridgeError, match="optimizer_weights"):
        restore_optimizer(model, os.path.join(runs["folder"], "after.h5"))


def test_a_loaded_model_is_completed_and_not_wrapped_twice(runs: dict[str, Any]) -> None:
    model = keras.models.load_model(os.path.join(runs["folder"], "after.keras"))
    Retrofit.apply(model)
    assert BRIDGE.loss_scale(model.optimizer).scale == 2048.0
    assert not isinstance(model.optimizer.inner_optimizer, keras.mixed_precision.LossScaleOptimizer)
    resume.train(model, 2, 4)
    for expected, weights in zip(runs["weights"], model.get_weights()):
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)


def test_after_undo_the_float32_model_is_saved(tmp_path: Any) -> None:
    model = resume.build(policy="float32")
    result = BRIDGE.retrofit(model, "mixed_float16")
    BRIDGE.install_loss_scale(model, SETTINGS)
    resume.train(model, 0, 1)
    BRIDGE.undo_retrofit(model, result)
    BRIDGE.remove_loss_scale(model)
    model.save(str(tmp_path / "a.keras"))
    state = resume.state(keras.models.load_model(str(tmp_path / "a.keras")))
    assert (state["optimizer"], state["iterations"], set(state["policies"])) == ("Adam", 4, {"float32"})
