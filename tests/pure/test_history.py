"""The history of runs: what is kept, what is read back, what is damaged, and going back."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.pure.history_runs import BASE, TUNED, Project, content
from tfvolta.config.loading import load_config
from tfvolta.errors import EvidenceError, EvidenceWarning, HistoryError
from tfvolta.history import keeping, rollback
from tfvolta.history.applied import FILE_NAME, Applied, read_applied
from tfvolta.history.commit import commit_of
from tfvolta.history.difference import differences, side_of
from tfvolta.history.durable import write_beside, write_durably
from tfvolta.history.entries import find_entry, read_history
from tfvolta.history.going_back import go_back


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def applied(folder: Path) -> Applied:
    found = read_applied(folder)
    assert isinstance(found, Applied), found
    return found


def test_a_config_knows_the_files_that_it_was_loaded_from(project: Project) -> None:
    (project.folder / "child.yaml").write_text("extends: [own.yaml, 'tfvolta:default']\n# mine\n")
    given = load_config(str(project.folder / "child.yaml"), overrides=["fit.batch_size=8"]).given
    assert [Path(file.path).name for file in given.files] == ["child.yaml", "own.yaml", "default.yaml"]
    assert given.files[1].text == BASE and given.overrides == ("fit.batch_size=8",)
    assert load_config(xla={"jit": "off"}).given.files == ()


def test_an_entry_has_text_sources_and_origin(project: Project) -> None:
    kept = applied(project.run(1, ["fit.batch_size=16"]))
    assert kept.main_file is not None and kept.main_file.text == BASE and "# fixed" in kept.main_file.text
    assert kept.overrides == ("fit.batch_size=16",) and set(kept.sources) == {"train.py"}
    assert kept.machine and kept.tfvolta and kept.commit is None
    (entry,) = read_history(project.runs).entries
    assert entry.figures.to_json() == {
        "examples_per_second": 1600.0,
        "step_seconds": 0.01,
        "peak_bytes": 2**30,
        "loss": 0.4,
    }
    assert entry.arguments == ("--epochs", "2") and entry.config.endswith("own.yaml + 1 set")


def test_the_commit_and_what_differs_from_it(project: Project) -> None:
    for words in (("init", "-q"), ("add", "train.py"), ("commit", "-qm", "one")):
        project.git(*words)
    commit_of.cache_clear()
    commit = applied(project.run(1)).commit
    assert commit is not None and commit.id == project.git("rev-parse", "HEAD")
    assert commit.dirty is False and commit.untracked == ("own.yaml",)
    project.script.write_text("import keras, os\n")
    commit_of.cache_clear()
    commit = applied(project.run(2)).commit
    assert commit is not None and commit.dirty is True and commit.changed == ("train.py",)


def test_entries_come_newest_first_and_those_in_use_are_named(project: Project) -> None:
    project.run(1)
    project.config.write_text(TUNED)
    project.run(2)
    project.run(3)
    history = read_history(project.runs)
    assert [entry.run_id for entry in history.entries] == ["run-3", "run-2", "run-1"]
    assert history.in_use() == {"run-3"}
    project.config.write_text(BASE)
    assert history.in_use() == {"run-1"}
    project.config.write_text("xla: {jit: auto}\n")
    assert history.in_use() == frozenset()
    assert len(history.of_script("train.py").entries) == 3 and not history.of_script("other.py").entries
    assert [entry.run_id for entry in read_history(project.runs, most=1).entries] == ["run-3"]
    assert read_history(project.folder / "nowhere").entries == ()


def test_runs_that_were_moved_are_the_same_history(project: Project, tmp_path: Path) -> None:
    project.run(1)
    moved = tmp_path / "elsewhere"
    project.runs.rename(moved)
    (entry,) = read_history(moved).entries
    assert entry.is_on_disk and entry.folder == moved / "run-1"


DAMAGES: dict[str, Any] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "list": lambda path: path.write_text("[]"),
    "binary": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "field": lambda path: path.write_text(json.dumps({**content(path), "files": 3})),
    "newer": lambda path: path.write_text(json.dumps({**content(path), "version": 9, "readable_from": 9})),
    "word": lambda path: path.write_text(json.dumps({**content(path), "readable_from": "x"})),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_named_and_the_others_are_read(project: Project, damage: str) -> None:
    first = project.run(1)
    project.run(2)
    DAMAGES[damage](first / FILE_NAME)
    history = read_history(project.runs)
    assert [problem.where for problem in history.damaged] == [str(first / FILE_NAME)]
    found = {entry.run_id: entry.applied is not None for entry in history.entries}
    assert found == {"run-1": False, "run-2": True}
    with pytest.raises(EvidenceError, match="cannot be read"):
        rollback.applied_of("run-1", project.runs)


def test_damaged_evidence_is_named_and_its_config_can_still_be_gone_back_to(project: Project) -> None:
    first = project.run(1)
    (first / "evidence.json").write_text("{")
    history = read_history(project.runs)
    assert not history.entries and "evidence.json" in history.damaged[0].where
    assert rollback.applied_of("run-1", project.runs).own_files[0].text == BASE


def test_an_entry_of_a_newer_version_that_old_readers_understand_is_read(project: Project) -> None:
    path = project.run(1) / FILE_NAME
    path.write_text(json.dumps({**content(path), "version": 2, "colour": "red"}))
    assert applied(path.parent).version == 2
    older = {name: value for name, value in content(path).items() if name in ("run_id", "written", "files")}
    path.write_text(json.dumps(older))
    assert applied(path.parent).own_files[0].text == BASE


def test_a_run_without_an_entry_is_listed_and_says_so(project: Project) -> None:
    folder = project.run(1)
    (folder / FILE_NAME).unlink()
    (entry,) = read_history(project.runs).entries
    assert entry.config == "not kept" and not entry.is_on_disk
    with pytest.raises(EvidenceError, match="kept no config"):
        rollback.applied_of("run-1", project.runs)
    (folder / FILE_NAME).write_text("{}")
    with pytest.raises(EvidenceError, match="did you mean run-1") as caught:
        rollback.applied_of("run-11", project.runs)
    assert caught.value.exit_code == 2


def test_a_full_disk_costs_the_entry_and_one_warning_and_no_training(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfvolta.session import Origin, Session

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping, "write_durably", full)
    config = load_config(str(project.config), run={"directory": str(project.runs), "seed": None})
    with pytest.warns(EvidenceWarning, match="No space left") as caught:
        session = Session(config, origin=Origin(script=str(project.script)), environ={})
        session.close("completed")
    assert len(caught) == 1
    assert [entry.evidence.status for entry in read_history(project.runs).entries] == ["completed"]


def test_two_writers_leave_two_whole_entries(project: Project) -> None:
    from tfvolta.session import Origin, Session

    config = load_config(str(project.config), run={"directory": str(project.runs), "seed": None})

    def begin() -> None:
        Session(config, origin=Origin(script=str(project.script)), environ={}).close("completed")

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    history = read_history(project.runs)
    assert len(history.entries) == 4 and not history.damaged
    assert all(entry.applied and entry.applied.run_id == entry.run_id for entry in history.entries)


def test_writing_keeps_mode_and_former_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("one")
    path.chmod(0o640)
    write_durably(path, b"two")
    assert path.read_text() == "two" and stat.S_IMODE(path.stat().st_mode) == 0o640

    def refuse(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="Input"):
        write_durably(path, b"three")
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"] and path.read_text() == "two"
    assert {write_beside(path, b"x", "now").name, write_beside(path, b"y", "now").name} == {
        "a.yaml.now.bak",
        "a.yaml.now.1.bak",
    }


def test_going_back_keeps_the_present_file_beside_it(project: Project) -> None:
    project.run(1)
    project.config.write_text(TUNED)
    project.run(2)
    history = read_history(project.runs)
    assert rollback.former(history).run_id == "run-1"
    changes = rollback.changes_to(rollback.applied_of("run-1", project.runs), history)
    assert [line for line in changes[0].lines() if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-  jit: model",
        "+  jit: 'off'",
    ]
    rollback.check_known(changes)
    (done,) = rollback.carry_out(changes)
    assert project.config.read_text() == BASE
    assert done.backup is not None and done.backup.read_text() == TUNED and done.backup.parent == project.folder
    assert rollback.changes_to(rollback.applied_of("run-1", project.runs), history) == ()


def test_a_file_changed_by_hand_is_not_written_over(project: Project) -> None:
    project.run(1)
    project.config.write_text("# an hour of thought\nxla: {jit: auto}\n")
    changes = rollback.changes_to(rollback.applied_of("run-1", project.runs), read_history(project.runs))
    with pytest.raises(HistoryError, match="changed by hand") as caught:
        rollback.check_known(changes)
    assert caught.value.exit_code == 1


def test_all_files_or_none_are_written_back(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    base = project.folder / "base.yaml"
    base.write_text(BASE)
    project.config.write_text("extends: base.yaml\n")
    project.run(1)
    base.write_text(TUNED)
    project.config.write_text("extends: base.yaml\nfit: {batch_size: 8}\n")
    project.run(2)
    changes = rollback.changes_to(rollback.applied_of("run-1", project.runs), read_history(project.runs))
    assert {change.path.name for change in changes} == {"own.yaml", "base.yaml"}
    real = rollback.write_durably

    def second_fails(path: Path, data: bytes) -> None:
        if path == base:
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(rollback, "write_durably", second_fails)
    with pytest.raises(HistoryError, match="No space left"):
        rollback.carry_out(changes)
    assert base.read_text() == TUNED and "batch_size" in project.config.read_text()
    assert not list(project.folder.glob("*.bak"))


def test_going_back_for_the_next_start(project: Project) -> None:
    first = project.run(1)
    other = project.folder / "own.tuned.yaml"
    other.write_text(TUNED)
    project.config = other
    second = project.run(2, ["fit.batch_size=8"])
    back = go_back(second, first)
    assert other.read_text() == BASE and (project.folder / "own.yaml").read_text() == BASE
    assert "fit.batch_size=8 here, none there" in back.sentence and back.to_json()["files"][0]["backup"]
    assert "already" in go_back(second, first).sentence
    elsewhere = project.folder / "there"
    elsewhere.mkdir()
    project.config = elsewhere / "own.yaml"
    project.config.write_text(TUNED)
    with pytest.raises(EvidenceError, match=r"--config .*own\.yaml"):
        go_back(project.run(3), first)


def test_sides_are_runs_files_and_templates(project: Project) -> None:
    project.run(1, ["fit.batch_size=8"])
    runs = str(project.runs)
    found = differences(side_of("run-1", runs), side_of(str(project.config), runs))
    assert [(each.key, each.a, each.b, each.origin_b) for each in found] == [("fit.batch_size", 8, None, "absent")]
    assert "override 1" in found[0].origin_a
    keys = {each.key for each in differences(side_of(str(project.config), runs), side_of("tfvolta:default", runs))}
    assert {"xla.jit", "mixed_precision.policy", "run.seed"} <= keys
    same = side_of(str(project.config), runs)
    assert differences(same, same) == ()


def test_find_entry_takes_ids_and_folders(project: Project) -> None:
    folder = project.run(1)
    assert find_entry("run-1", project.runs).run_id == find_entry(str(folder)).run_id == "run-1"
    with pytest.raises(EvidenceError, match="No such run"):
        find_entry("run-9", project.runs)
