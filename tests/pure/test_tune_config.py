"""The tuned config: the user's file, comments and all, and nothing else than what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfvolta.config import load_config
from tfvolta.errors import TuneError
from tfvolta.tune.tuned_config import Settings, tuned_path, tuned_text, write_tuned

USERS = """# Mine.  Keep this.
extends: base.yaml   # the team's
run:
  seed: 3      # as in the paper
mixed_precision: {policy: float32}   # not yet

fit:
  # small steps
  steps_per_execution: 1
"""
WORDS = ("xla.jit=off", "fit.steps_per_execution=10", "mixed_precision.policy=mixed_float16")


def written(folder: Path, settings: Settings, path: Path, said: dict[str, str]) -> str:
    text = tuned_text(settings, said, ["Found.", "", "1.3x"], path)
    write_tuned(path, text, settings)
    assert path.read_text() == text
    words = [*settings.overrides, *settings.words]
    assert load_config(str(path)) == load_config(settings.config, overrides=words)
    return text


@pytest.mark.parametrize("place", ["users.tuned.yaml", "elsewhere/tuned.yaml"])
def test_comments_are_kept_and_evidence_stands_beside_settings(tmp_path: Path, place: str) -> None:
    (tmp_path / "base.yaml").write_text("xla: {jit: auto}\n")
    (tmp_path / "users.yaml").write_text(USERS)
    overrides = ("run.strict=false", "input={prefetch: 3}", "devices.gpu_thread_mode=gpu_private")
    settings = Settings(str(tmp_path / "users.yaml"), overrides, WORDS)
    text = written(tmp_path, settings, tmp_path / place, {"xla.jit": "1.30x", "fit.steps_per_execution": "1.10x"})
    for comment in ("# Mine.  Keep this.", "# the team's", "# as in the paper", "# not yet", "# small steps"):
        assert comment in text
    assert "jit: off  # 1.30x" in text and "steps_per_execution: 10  # 1.10x" in text
    assert text.startswith("# Found.\n#\n# 1.3x\n")
    assert (tmp_path / "users.yaml").read_text() == USERS


def test_without_a_file_the_template_is_extended(tmp_path: Path) -> None:
    settings = Settings(None, (), ("devices.memory_growth=null", "xla.flags=[--xla_gpu_enable_cublaslt=true]"))
    text = written(tmp_path, settings, tmp_path / "tuned.yaml", {})
    assert "extends: tfvolta:default" in text


def test_a_section_that_is_null_is_made(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: tfvolta:default\nxla: null   # none\n")
    written(tmp_path, Settings(str(tmp_path / "a.yaml"), (), WORDS), tmp_path / "b.yaml", {})


def test_a_file_that_would_mean_something_else_is_not_written(tmp_path: Path) -> None:
    settings = Settings(None, (), WORDS)
    text = tuned_text(settings, {}, [], tmp_path / "a.yaml").replace("10", "12")
    with pytest.raises(TuneError, match="cannot be written from this file"):
        write_tuned(tmp_path / "a.yaml", text, settings)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(None, (), WORDS)
    with pytest.raises(TuneError, match="cannot be written"):
        write_tuned(tmp_path / "file" / "a.yaml", tuned_text(settings, {}, [], tmp_path / "a.yaml"), settings)


def test_the_place_is_beside_the_users_file(tmp_path: Path) -> None:
    assert tuned_path("a/b.yml", None, tmp_path) == Path("a/b.tuned.yml")
    assert tuned_path("tfvolta:default", None, tmp_path) == tmp_path / "tuned.yaml"
    assert tuned_path("a.yaml", "out.yaml", tmp_path) == Path("out.yaml")
