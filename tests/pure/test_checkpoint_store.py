"""The folder of checkpoints: whole or not there, the newest first, the former one where the newest is damaged."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tfvolta.checkpoint import disk
from tfvolta.checkpoint.manifest import Manifest, Position, Randomness, VariableRecord, difference
from tfvolta.checkpoint.store import DamagedError, Store, read_manifest


def manifest(steps: int, **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "saved": "2026-03-01T12:30:05.250Z",
        "stack": "keras3",
        "epoch": 1,
        "batch": 4,
        "steps": steps,
        "epochs": 3,
        "optimizer": "Adam",
        "variables": {"model": (VariableRecord(name="dense/kernel", shape=(4, 8), dtype="float32"),)},
        **changes,
    }
    return Manifest(**fields)


def saved(store: Store, steps: int, **changes: Any) -> Path:
    folder = store.begin()
    (folder / "state.index").write_bytes(b"index")
    (folder / "state.data-00000-of-00001").write_bytes(b"weights" * 10)
    return store.commit(folder, manifest(steps, **changes))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "fit-00", keep=2)


def test_an_absent_folder_has_no_checkpoints(store: Store) -> None:
    assert store.checkpoints() == []
    assert store.set_aside() is None
    store.clean()


def test_the_newest_come_first_and_only_so_many_are_kept(store: Store) -> None:
    for steps in (8, 1_000_000_000, 16):
        saved(store, steps)
    assert [each.name for each in store.checkpoints()] == ["step-1000000000", "step-000000016"]


def test_a_second_checkpoint_of_one_step_is_the_newer_one(store: Store) -> None:
    saved(store, 24)
    saved(store, 24, finished=True)
    assert [each.name for each in store.checkpoints()] == ["step-000000024-2", "step-000000024"]
    assert read_manifest(store.checkpoints()[0]).finished


def test_what_a_killed_process_left_is_no_checkpoint_and_is_cleaned(store: Store) -> None:
    whole = saved(store, 8)
    half = store.begin()
    (half / "state.index").write_bytes(b"index")
    (half / "manifest.json").write_text(manifest(16).model_dump_json())
    assert store.checkpoints() == [whole]
    store.clean()
    assert not half.exists()
    assert whole.exists()


@pytest.mark.parametrize("moment", ["manifest", "rename"])
def test_a_process_that_ends_while_it_saves_leaves_the_former_checkpoint(
    store: Store, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = saved(store, 8)

    def ends(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*((Path, "write_text") if moment == "manifest" else (os, "rename")), ends)
    with pytest.raises(KeyboardInterrupt):
        saved(store, 16)
    assert store.checkpoints() == [whole]
    assert read_manifest(whole).steps == 8


def test_what_a_manifest_says_comes_back(store: Store) -> None:
    state = Randomness(python=(3, (1, 2, 3), None), numpy=("MT19937", (4, 5), 1, 0, 0.5))
    history = {"epoch": (0,), "log:loss": (0.25, "nan")}
    folder = saved(store, 12, randomness=(state,), history=history, epoch_batches=8)
    found = read_manifest(folder)
    assert found.position == Position(1, 4, 12)
    assert found.randomness[0] == state
    assert found.history == history
    assert found.files == {"state.index": 5, "state.data-00000-of-00001": 70}


def test_after_the_last_batch_of_an_epoch_the_next_one_goes_on() -> None:
    assert manifest(16, epoch=1, batch=8, epoch_batches=8).position == Position(2, 0, 16)


def damage(folder: Path, how: str) -> None:
    data = folder / "state.data-00000-of-00001"
    if how == "missing":
        data.unlink()
    elif how == "shorter":
        data.write_bytes(b"weights")
    elif how == "no manifest":
        (folder / "manifest.json").unlink()
    else:
        content = json.loads((folder / "manifest.json").read_text())
        content.update({"no json": None, "negative": {"epoch": -1}, "future": {"format": 2}}[how] or {})
        (folder / "manifest.json").write_text("{" if how == "no json" else json.dumps(content))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("missing", "state.data-00000-of-00001 is missing"),
        ("shorter", "has 7 bytes of 70"),
        ("no manifest", "manifest.json cannot be read"),
        ("no json", "manifest.json cannot be read"),
        ("negative", "manifest.json cannot be read"),
        ("future", "manifest.json cannot be read"),
    ],
)
def test_a_damaged_checkpoint_says_what_is_wrong(store: Store, how: str, says: str) -> None:
    folder = saved(store, 8)
    damage(folder, how)
    with pytest.raises(DamagedError, match=says):
        read_manifest(folder)


def test_a_checkpoint_marked_damaged_is_no_longer_the_newest(store: Store) -> None:
    former, newest = saved(store, 8), saved(store, 16)
    marked = store.mark_damaged(newest)
    assert store.checkpoints() == [former]
    assert marked.name.startswith("damaged-step-000000016")
    assert marked.is_dir()


def test_a_run_that_begins_anew_moves_the_former_ones_aside(store: Store) -> None:
    saved(store, 24)
    aside = store.set_aside()
    assert store.checkpoints() == []
    assert aside is not None
    assert [each.name for each in aside.iterdir()] == ["step-000000024"]


SHAPES = {
    "model": (
        VariableRecord(name="dense/kernel", shape=(4, 8), dtype="float32"),
        VariableRecord(name="dense/bias", shape=(8,), dtype="float32"),
    ),
    "optimizer": (VariableRecord(name="iteration", shape=(), dtype="int64"),),
}


def test_the_same_model_fits_whatever_its_layers_are_called() -> None:
    renamed = tuple(each.model_copy(update={"name": f"dense_1/{each.name}"}) for each in SHAPES["model"])
    assert difference("step-8", manifest(8, variables=SHAPES), {**SHAPES, "model": renamed}, "Adam") is None


def test_another_shape_is_named_with_both_models() -> None:
    other = {**SHAPES, "model": (SHAPES["model"][0].model_copy(update={"shape": (4, 16)}), SHAPES["model"][1])}
    problem = difference("checkpoints/fit-00/step-8", manifest(8, variables=SHAPES), other, "Adam")
    assert problem is not None
    assert "model variable 0: dense/kernel [4, 8] float32" in problem.expected
    assert "dense/kernel [4, 16] float32" in problem.received
    assert "checkpoint.resume: false" in problem.fix


def test_another_optimizer_is_named() -> None:
    slots = (*SHAPES["optimizer"], VariableRecord(name="momentum", shape=(4, 8), dtype="float32"))
    problem = difference("step-8", manifest(8, variables=SHAPES), {**SHAPES, "optimizer": slots}, "SGD")
    assert problem is not None
    assert "1 variables of the optimiser Adam" in problem.expected
    assert "2 variables of the optimiser SGD" in problem.received


def test_a_folder_that_cannot_be_made_is_a_problem_before_training(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    problem = disk.prepare(tmp_path / "taken" / "fit-00", 0)
    assert problem is not None
    assert "a file is in the way" in problem.why
    assert "checkpoint.directory" in problem.where


def test_a_disk_without_room_for_one_checkpoint_is_a_problem_before_training(tmp_path: Path) -> None:
    problem = disk.prepare(tmp_path, 2**70)
    assert problem is not None
    assert "MiB free" in problem.received
    assert disk.prepare(tmp_path, 1) is None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_called_so() -> None:
    assert disk.reason(OSError(errno.ENOSPC, "No space left on device")) == "the disk is full"
    assert "Input/output error" in disk.reason(OSError(errno.EIO, "Input/output error"))
