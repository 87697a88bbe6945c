"""tfvolta's flags in an absl program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

import tfvolta.flags
from tfvolta.errors import ConfigError


def _parsed(*arguments: str) -> flags.FlagValues:
    values = flags.FlagValues()
    tfvolta.flags.define_flags(values)
    tfvolta.flags.define_flags(values)
    values(["program", *arguments])
    return values


def test_config_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("xla: {jit: auto}\n")
    values = _parsed(f"--tfvolta_config={path}", "--tfvolta_set=xla.jit='off'", "--tfvolta_set=run.seed=7")
    config = tfvolta.flags.config(values)
    assert (config.xla.jit, config.run.seed) == ("off", 7)
    assert "override 1" in str(config.provenance["xla.jit"])


def test_without_flags_the_embedded_default() -> None:
    assert tfvolta.flags.config(_parsed()).mixed_precision.policy == "mixed_float16"


def test_bad_file_and_unparsed_flags(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        tfvolta.flags.config(_parsed(f"--tfvolta_config={tmp_path}/nowhere.yaml"))
    values = flags.FlagValues()
    with pytest.raises(ConfigError, match="flags not defined"):
        tfvolta.flags.config(values)
    tfvolta.flags.define_flags(values)
    with pytest.raises(ConfigError, match="flags not parsed"):
        tfvolta.flags.config(values)


def test_a_program_ends_with_the_message_and_without_a_traceback(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from absl import app\nimport tfvolta\ntfvolta.flags.define_flags()\n"
        "def main(_):\n    tfvolta.flags.config()\napp.run(main)\n"
    )
    command = [sys.executable, str(program), "--tfvolta_config=nowhere.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 2 and "nowhere.yaml" in done.stderr and "Traceback" not in done.stderr
