"""Slips on the command line are answered with why, and with the line that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfvolta.cli.main import main


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("run", "--epochs", "3", "train.py"), "tfvolta run train.py --epochs 3"),
        (("run", "--epochs=3", "-v", "train.py", "--mine"), "tfvolta run train.py --mine --epochs=3 -v"),
        (("run", "--set", "xla.jit=off", "--lr", "0.1", "a b.py"), "tfvolta run --set xla.jit=off 'a b.py' --lr 0.1"),
        (("run", "--confg", "x.yaml", "train.py"), "did you mean --config?"),
        (("facts", "--nope"), "tfvolta facts --help"),
    ],
)
def test_an_option_that_a_command_does_not_have(
    words: tuple[str, ...], fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix in told(capsys, *words)


def test_a_script_of_nearly_that_name_is_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").touch()
    assert f"did you mean {tmp_path / 'train.py'}?" in told(capsys, "run", str(tmp_path / "trian.py"))
    assert "give the path" in told(capsys, "run", str(tmp_path / "no" / "such.py"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "0"), ("why:", "fix:      --workers 2")),
        (("--workers", "2", "--max-restarts", "-1"), ("why:", "--max-restarts 0")),
        (("--workers", "2", "--nodes", "4"), ("this machine alone", "add --print slurm")),
        (("--workers", "2", "--sbatch=--time=1"), ("this machine alone", "add --print slurm")),
    ],
)
def test_what_cannot_be_launched_says_why_and_what_to_write(
    words: tuple[str, ...], said: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").touch()
    text = told(capsys, "launch", *words, str(tmp_path / "train.py"))
    assert all(each in text for each in said)
