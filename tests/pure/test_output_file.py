"""A file that cannot be written is said before the work, with what to do; looking leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfvolta.cli.main import main
from tfvolta.cli.output_file import check_output
from tfvolta.errors import ConfigError


def test_looking_changes_nothing(tmp_path: Path) -> None:
    check_output("--output", None)
    check_output("--output", tmp_path / "new.yaml")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old.yaml").write_text("kept")
    check_output("--output", tmp_path / "old.yaml")
    assert (tmp_path / "old.yaml").read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "why", "fix"),
    [
        ("no/where/found.yaml", "No such file", "mkdir -p"),
        (".", "Is a directory", "found.yaml"),
        ("a\0b", "null", "~/"),
    ],
)
def test_what_cannot_be_written_is_said(tmp_path: Path, name: str, why: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_output("--output", tmp_path / name)
    (problem,) = caught.value.problems
    assert why in problem.why and fix in problem.fix


def test_a_search_for_a_batch_does_not_begin_without_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(1)")
    assert main(["batch-size", "--output", str(tmp_path / "no" / "found.yaml"), str(script)]) == 2
    told = capsys.readouterr().err
    assert "mkdir -p" in told and "batch 32" not in told
