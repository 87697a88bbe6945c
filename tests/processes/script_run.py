"""Running a script under ``tfvolta run`` in a process of its own, on the stack of this process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Mapping, Optional

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Done:
    """A run that ended.

    Attributes:
        code: Exit code.
        out: Standard output.
        err: Standard error.
        evidences: Of every run in the run directory, the oldest first.
    """

    code: int
    out: str
    err: str
    evidences: tuple[dict[str, Any], ...]

    @property
    def evidence(self) -> dict[str, Any]:
        """The evidence of the only run."""
        assert len(self.evidences) == 1, [evidence["run_id"] for evidence in self.evidences]
        return self.evidences[0]

    def status(self, knob: str) -> str:
        """How a setting ended in the only run."""
        return str(self.evidence["outcomes"][knob]["status"])


def run_script(
    folder: Path,
    body: str,
    *options: str,
    arguments: tuple[str, ...] = (),
    environ: Optional[Mapping[str, str]] = None,
    name: str = "train.py",
) -> Done:
    """Writes a script into a folder and runs it under tfvolta, with its working directory there."""
    script = folder / name
    script.write_text(textwrap.dedent(body))
    assert "tfvolta" not in script.read_text()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **(environ or {})}
    command = [sys.executable, "-m", "tfvolta", "run", "--directory", "runs", *options, name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder)
    evidences = [json.loads(path.read_text()) for path in (folder / "runs").glob("*/evidence.json")]
    evidences.sort(key=lambda evidence: str(evidence["started"]))
    return Done(done.returncode, done.stdout, done.stderr, tuple(evidences))
