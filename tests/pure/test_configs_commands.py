"""``tfvolta configs list``, ``diff``, ``rollback`` and ``save``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pure.history_runs import BASE, TUNED, Project
from tfvolta.cli.main import main
from tfvolta.config.loading import load_config


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    made = Project(tmp_path)
    made.run(1)
    made.config.write_text(TUNED)
    made.run(2)
    return made


def said(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> tuple[str, str]:
    assert main(["configs", *words]) == code
    return capsys.readouterr()


def test_the_list_has_figures_and_what_is_in_use(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, 0, "list")
    first, second = [line for line in out.splitlines() if "run-" in line]
    assert first.startswith("* run-2") and "completed" in first and "1,600" in first and "1,024" in first
    assert second.startswith("  run-1")
    found = json.loads(said(capsys, 0, "list", "--json", "--script", "train.py")[0])
    assert [(entry["run"], entry["in_use"]) for entry in found["entries"]] == [("run-2", True), ("run-1", False)]
    assert found["entries"][0]["figures"]["loss"] == 0.4 and found["damaged"] == []
    assert json.loads(said(capsys, 0, "--json", "list", "--script", "x.py")[0])["entries"] == []


def test_a_damaged_entry_is_named_on_standard_error(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.runs / "run-1" / "evidence.json").write_text("{")
    out, err = said(capsys, 0, "list")
    assert "run-2" in out and "run-1" not in out and "run-1" in err and "JSON" in err


def test_an_empty_history(tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert "tfvolta run" in said(capsys, 0, "list")[0]
    assert "no such folder" in said(capsys, 2, "list", "--runs", "elsewhere")[1].lower()
    assert "nothing to go back to" in said(capsys, 2, "rollback")[1]


def test_the_difference_has_origins(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, 0, "diff", "run-1", "run-2")
    assert "xla.jit" in out and "model" in out and "run-2" in out
    found = json.loads(said(capsys, 0, "diff", "run-1", "own.yaml", "--json")[0])
    (each,) = [each for each in found["differences"] if each["key"] == "xla.jit"]
    assert (each["a"], each["b"], found["b"]["kind"]) == ("off", "model", "file")
    assert each["origin_a"].endswith("own.yaml:4") and each["origin_b"] == "own.yaml:4"
    assert "Nothing differs" in said(capsys, 0, "diff", "own.yaml", "own.yaml")[0]
    assert "run-2" in said(capsys, 2, "diff", "run-22", "run-1")[1]


def test_rollback_shows_writes_and_keeps(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert "-  jit: model" in said(capsys, 0, "rollback", "--dry-run")[0]
    assert project.config.read_text() == TUNED
    out, _ = said(capsys, 0, "rollback")
    assert "-  jit: model" in out and "+  jit: 'off'" in out and "run-1" in out
    assert project.config.read_text() == BASE
    (backup,) = project.folder.glob("own.yaml.*.bak")
    assert backup.read_text() == TUNED
    assert "already" in said(capsys, 0, "rollback", "run-1")[0]


def test_rollback_refuses_what_was_changed_by_hand(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.config.write_text("xla: {jit: auto}\n")
    assert "changed by hand" in said(capsys, 1, "rollback", "run-1")[1]
    assert project.config.read_text() == "xla: {jit: auto}\n"
    found = json.loads(said(capsys, 0, "rollback", "--force", "run-1", "--json")[0])
    assert project.config.read_text() == BASE
    assert Path(found["files"][0]["backup"]).read_text() == "xla: {jit: auto}\n"


def test_a_run_becomes_a_template_with_its_comments(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, 0, "save", "best", "--from", "run-1")
    text = (project.folder / "configs" / "best.yaml").read_text()
    assert text.endswith(BASE) and load_config("configs/best.yaml") == load_config_of(BASE, project)
    for part in (
        "sequential (Sequential), in train.py",
        "Tesla V100-SXM2-16GB",
        "tensorflow 2.21.0",
        "1,600 examples/s",
    ):
        assert part in text.split("\n\n")[0]
    assert "118 steps timed" in text and "Measured by: tfvolta run --config" in text
    assert "exists" in said(capsys, 1, "save", "best", "--from", "run-2")[1]
    said(capsys, 0, "save", "best.yaml", "--from", "run-2", "--force")
    assert "jit: model" in (project.folder / "configs" / "best.yaml").read_text()
    assert "plain name" in said(capsys, 2, "save", "../best", "--from", "run-1")[1]


def load_config_of(text: str, project: Project) -> Any:
    path = project.folder / "wanted.yaml"
    path.write_text(text)
    return load_config(str(path))


def test_overrides_are_part_of_a_template(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run(3, ["fit.batch_size=8", "xla.flags=[--xla_a=1, '--xla_b=\"x\"']", "run.directory=elsewhere"])
    said(capsys, 0, "save", "set", "--from", "run-3", "--to", "mine")
    config = load_config("mine/set.yaml")
    assert config.get("fit.batch_size") == 8 and config.get("xla.jit") == "model" and config.run.seed == 7
    assert config.get("xla.flags") == ["--xla_a=1", '--xla_b="x"'] and config.run.directory == "runs"
    assert "# override 1" in (project.folder / "mine" / "set.yaml").read_text()


def test_a_run_that_failed_or_left_its_band_is_no_template(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run(3, status="failed")
    project.run(4, measurements={"guard": {"tripped": [{"kind": "loss", "what": "loss 9 is outside"}]}})
    assert "failed" in said(capsys, 2, "save", "x", "--from", "run-3")[1]
    assert "loss 9" in said(capsys, 2, "save", "x", "--from", "run-4")[1]
    assert not (project.folder / "configs").exists()


def test_a_search_becomes_a_template(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project.runs / "search"
    folder.mkdir()
    tuned = project.folder / "own.tuned.yaml"
    tuned.write_text(TUNED)
    (folder / "tune.json").write_text(json.dumps(search(tuned)))
    said(capsys, 0, "save", "tuned", "--from", "search")
    text = (project.folder / "configs" / "tuned.yaml").read_text()
    assert text.endswith(TUNED)
    for part in (
        "2 x Tesla V100",
        "A gain of 1.25.",
        "Seeds 1, 2",
        "xla.jit=model: 1.250 (1.200 to 1.300)",
        "again --now",
    ):
        assert part in text
    tuned.unlink()
    assert "which is gone" in said(capsys, 2, "save", "other", "--from", str(folder / "tune.json"))[1]
    (folder / "tune.json").write_text("{}")
    assert "cannot be read" in said(capsys, 2, "save", "other", "--from", "search")[1]


def search(tuned: Path) -> dict[str, Any]:
    ratio = {"estimate": 1.25, "low": 1.2, "high": 1.3, "confidence": 0.95, "pairs": 6, "method": "sign test"}
    return {
        "created": "2026-03-01T12:00:00Z",
        "command": ["tfvolta", "tune", "train.py"],
        "reproduce": "tfvolta tune again --now",
        "script": "/home/me/train.py",
        "fingerprint": "f",
        "machine": {"stack": "keras3", "cores": 8, "memory_mb": 1000, "gpus": ["Tesla V100"] * 2},
        "versions": {"tfvolta": "1", "tensorflow": "2.21.0"},
        "seeds": [1, 2],
        "space": [],
        "combinations": 1,
        "baseline": {"ending": "measured"},
        "verdict": "gain",
        "sentence": "A gain of 1.25.",
        "gain": ratio,
        "ablation": [{"setting": "xla.jit", "value": "model", "ratio": ratio, "verdict": "gain"}],
        "overhead": {"trial_seconds": 1, "tuner_seconds": 0, "tuner_cpu_seconds": 0, "share": 0},
        "tuned_config": str(tuned),
    }


@pytest.mark.parametrize("words", [["lst"], ["dif", "a"]])
def test_a_slip_is_answered_with_the_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["configs", *words])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 2 and capsys.readouterr().err
