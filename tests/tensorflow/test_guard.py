"""A fit that is held to an earlier one of the same script, on the Keras of this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stack import keras
from tfvolta.callbacks import session_callbacks
from tfvolta.config import load_config
from tfvolta.errors import GuardWarning
from tfvolta.evidence.reading import read
from tfvolta.history.entries import read_history
from tfvolta.outcome import Status
from tfvolta.session import Origin, Session

BASE = "# what was good\nmonitor: {memory: false}\n"
GUARDED = BASE + "guard: {action: rollback, every_steps: 5}\n"


class Drag(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes every batch slower."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.05)


def train(folder: Path, text: str, seed: int = 0, rate: float = 0.05, drag: bool = False, rows: int = 160) -> Any:
    """A run of two epochs of 40 batches; its session, closed."""
    path = folder / "own.yaml"
    path.write_text(text)
    config = load_config(str(path), run={"directory": str(folder / "runs")})
    session = Session(config, origin=Origin(script=str(folder / "train.py"), command=["train.py"]))
    keras.utils.set_random_seed(seed)
    x = np.random.default_rng(0).normal(size=(rows, 8)).astype("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse", jit_compile=False)
    callbacks = [*session_callbacks(session), *([Drag()] if drag else [])]
    model.fit(x, x[:, :1] * 0.5, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    session.close("completed")
    return session


def guard_of(session: Any) -> Any:
    return read(session.recorder.path).measurements["guard"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import keras\n")
    train(tmp_path, BASE)
    return tmp_path


def test_a_fit_is_held_to_the_earlier_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = read_history(project / "runs").entries
    config = project / "own.yaml"

    alike = train(project, GUARDED.replace("every_steps: 5", "throughput_floor: null"))
    seen = guard_of(alike)
    assert seen["baseline"] == first.run_id and seen["tripped"] == [] and seen["not_compared"] == {}
    assert seen["loss"]["epoch"] == 1 and seen["loss"]["loss"] == pytest.approx(seen["loss"]["earlier"], rel=1e-4)
    assert alike.endings["guard"].outcome.status is Status.APPLIED and config.read_text() != BASE

    with pytest.warns(GuardWarning, match=r"Epoch 0, batch 3\d: throughput is 0\.\d+ of that of .*Training stops"):
        slow = train(project, GUARDED, drag=True)
    seen = guard_of(slow)
    assert [each["kind"] for each in seen["tripped"]] == ["throughput"] and seen["not_compared"] == {}
    assert config.read_text() == BASE and Path(seen["rolled_back"]["files"][0]["backup"]).read_text() == GUARDED
    evidence = read(slow.recorder.path)
    assert evidence.fits[0]["steps"] < 40 and any("is back to what it was" in text for text in evidence.warnings)
    assert "is back to what it was" in capsys.readouterr().err

    with pytest.warns(GuardWarning, match=r"loss .* is outside .* 20 % of the baseline's"):
        other = train(
            project, GUARDED.replace("rollback, every_steps: 5", "report, throughput_floor: null"), rate=0.001
        )
    seen = guard_of(other)
    assert [each["kind"] for each in seen["tripped"]] == ["loss"] and "rolled_back" not in seen
    assert read(other.recorder.path).fits[0]["steps"] == 80 and config.read_text() != BASE


def test_other_seeds_and_data_are_not_compared(project: Path) -> None:
    text = GUARDED.replace("every_steps: 5", "throughput_floor: null")
    seeded = train(project, text, seed=1)
    assert "the seed differs: 1 here, 0 there" in guard_of(seeded)["not_compared"]["loss"]
    fewer = train(project, text, rows=80, rate=0.001)
    assert "20 steps in an epoch here, 40 there" in guard_of(fewer)["not_compared"]["loss"]
    assert guard_of(fewer)["tripped"] == []


def test_without_an_earlier_run_the_first_is_held_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import keras\n")
    session = train(tmp_path, GUARDED)
    outcome = session.endings["guard"].outcome
    assert outcome.status is Status.NOT_APPLICABLE and "no earlier completed run" in outcome.message
    assert guard_of(session)["not_compared"] == {"all": "there is no earlier completed run of this script"}
