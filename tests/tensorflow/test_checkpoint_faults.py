"""Checkpoints that are damaged, of another model, or cannot be written; and a process that is told to end."""

from __future__ import annotations

import contextlib
import errno
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stack import keras
from tests.tensorflow.checkpoint_models import (
    DATA,
    STEPS,
    TOTAL,
    CrashError,
    Interrupt,
    checkpoints,
    compiled,
    difference,
    fit,
    steps,
)
from tfvolta.callbacks import Checkpoint
from tfvolta.checkpoint import state
from tfvolta.checkpoint.store import Store
from tfvolta.errors import PREEMPTED_EXIT_CODE, CheckpointError, CheckpointWarning, Preempted
from tfvolta.outcome import Status


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Data sets, which are made before the model, take the global seed too."""
    keras.utils.set_random_seed(5)


def crashed(folder: Path, **changes: Any) -> None:
    """Leaves checkpoints of steps 8, 10 and 12."""
    with contextlib.suppress(CrashError):
        fit(compiled(), DATA["seeded"](), Checkpoint(str(folder), every_steps=2, **changes), Interrupt(1, 4))
    assert checkpoints(folder) == ["step-000000008", "step-000000010", "step-000000012"]


def newest(folder: Path) -> Path:
    return Store(folder / "fit-00", 3).checkpoints()[0]


def flip(path: Path) -> None:
    """Changes one byte in the middle of a file; its length stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def test_the_one_before_a_damaged_checkpoint_is_used_and_that_is_said(tmp_path: Path) -> None:
    whole = compiled()
    fit(whole, DATA["seeded"](), Checkpoint(str(tmp_path / "whole")))
    crashed(tmp_path)
    flip(newest(tmp_path) / "state.data-00000-of-00001")
    (newest(tmp_path) / "manifest.json").touch()
    model = compiled()
    with pytest.warns(CheckpointWarning, match=r"step-000000012 is damaged \(.*[Cc]hecksum.*damaged-step-000000012"):
        fit(model, DATA["seeded"](), Checkpoint(str(tmp_path), every_steps=2))
    assert steps(model) == TOTAL
    assert difference(model, whole) == 0.0


def test_without_one_that_can_be_read_nothing_begins(tmp_path: Path) -> None:
    crashed(tmp_path)
    for each in Store(tmp_path / "fit-00", 3).checkpoints():
        (each / "state.index").write_bytes(b"")
    model = compiled()
    with pytest.warns(CheckpointWarning), pytest.raises(CheckpointError) as caught:
        fit(model, DATA["seeded"](), Checkpoint(str(tmp_path)))
    assert "step-000000012: state.index has 0 bytes of" in caught.value.problems[0].received
    assert steps(model) == 0


def other(width: int = 16, optimizer: Any = None) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(width, activation="relu"), layers.BatchNormalization(), layers.Dense(1)]
    )
    model.compile(optimizer or keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    return model


def test_another_models_checkpoint_is_refused_and_nothing_is_restored(tmp_path: Path) -> None:
    crashed(tmp_path)
    model = other()
    before = model.get_weights()
    with pytest.raises(CheckpointError) as caught:
        fit(model, DATA["seeded"](), Checkpoint(str(tmp_path)))
    problem = caught.value.problems[0]
    assert "[4, 8] float32" in problem.expected
    assert "[4, 16] float32" in problem.received
    assert all(np.array_equal(one, two) for one, two in zip(before, model.get_weights()))


def test_another_optimizers_state_is_refused(tmp_path: Path) -> None:
    crashed(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        fit(other(8, keras.optimizers.SGD(0.1)), DATA["seeded"](), Checkpoint(str(tmp_path)))
    assert "optimiser Adam" in caught.value.problems[0].expected
    assert "optimiser SGD" in caught.value.problems[0].received


def test_data_that_end_before_the_place_are_refused(tmp_path: Path) -> None:
    with contextlib.suppress(CrashError):
        fit(compiled(), DATA["generator"](), Checkpoint(str(tmp_path), every_steps=2), Interrupt(0, 6))
    short = {"x": DATA["generator"]()["x"].take(3)}
    with pytest.raises(CheckpointError) as caught:
        fit(compiled(), short, Checkpoint(str(tmp_path)))
    assert caught.value.problems[0].received == "3 batches"


def test_a_folder_that_cannot_be_written_is_an_error_before_training(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    model = compiled()
    with pytest.raises(CheckpointError, match="a file is in the way"):
        fit(model, DATA["arrays"](), Checkpoint(str(tmp_path / "taken" / "checkpoints")))
    assert steps(model) == 0


def test_a_disk_that_fills_up_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = state.write, []

    def full(*arguments: Any, **keywords: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*arguments, **keywords)

    monkeypatch.setattr(state, "write", full)
    model, callback = compiled(), Checkpoint(str(tmp_path))
    with pytest.warns(CheckpointWarning, match="the disk is full. Training goes on; the newest is step-000000008"):
        fit(model, DATA["arrays"](), callback)
    assert steps(model) == TOTAL
    assert [each.name for each in (tmp_path / "fit-00").iterdir()] == ["step-000000008"]
    assert callback.session.endings["checkpoint"].outcome.status is Status.APPLIED


def test_keras_own_backup_beside_it_is_refused(tmp_path: Path) -> None:
    backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
    with pytest.raises(CheckpointError, match="remove BackupAndRestore, or the checkpoint section"):
        fit(compiled(), DATA["arrays"](), Checkpoint(str(tmp_path / "ours")), backup)


class Terminate(Interrupt):
    """Sends this process SIGTERM after a batch of an epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("at", [(1, 4), (0, STEPS - 1), (2, STEPS - 1)])
def test_sigterm_saves_where_the_next_batch_begins(
    at: tuple[int, int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = compiled()
    fit(whole, DATA["seeded"](), Checkpoint(str(tmp_path / "whole")))
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted) as caught:
        fit(compiled(), DATA["seeded"](), Checkpoint(str(tmp_path / "ours")), Terminate(*at))
    assert caught.value.code == PREEMPTED_EXIT_CODE == 143
    assert signal.getsignal(signal.SIGTERM) is handler
    number = at[0] * STEPS + at[1] + 1
    assert checkpoints(tmp_path / "ours")[-1].startswith(f"step-{number:09d}")
    assert "tfvolta: SIGTERM: " in capfd.readouterr().err
    model = compiled()
    fit(model, DATA["seeded"](), Checkpoint(str(tmp_path / "ours")))
    assert steps(model) == TOTAL
    assert difference(model, whole, "model", "optimizer") == 0.0


def test_sigterm_is_left_alone_where_that_is_asked(tmp_path: Path) -> None:
    heard: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        fit(compiled(), DATA["arrays"](), Checkpoint(str(tmp_path), on_preemption=False), Terminate(1, 4))
    finally:
        signal.signal(signal.SIGTERM, former)
    assert heard == [signal.SIGTERM]
