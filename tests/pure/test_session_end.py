"""A script that calls tfvolta itself is told at its end where the evidence is, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pure.sources import ROOT
from tfvolta.config import load_config
from tfvolta.errors import EvidenceError
from tfvolta.script.footprint import Request, _session

_SCRIPT = """
import sys
import tfvolta
from tfvolta.session import session_for
for name in sys.argv[1:]:
    session_for(tfvolta.load_config(run={"directory": name}))
"""


@pytest.mark.parametrize(("folders", "more"), [(("a",), ""), (("a", "b"), " (and 1 before it)")])
def test_the_end_says_where_the_evidence_is(tmp_path: Path, folders: tuple[str, ...], more: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SCRIPT, *folders]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=True)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("tfvolta: evidence")]
    (path,) = (tmp_path / folders[-1]).glob("*/evidence.json")
    assert line == f"tfvolta: evidence in {path}{more}; tfvolta report {path.parent}"


def test_an_estimate_needs_no_folder_for_evidence(tmp_path: Path) -> None:
    blocked = tmp_path / "runs"
    blocked.write_text("a file in the way")
    config = load_config(run={"directory": str(blocked)})
    session = _session(config, Request("train.py"))
    assert session.recorder.path is None
    session.close()
    for asked in (Request("train.py", directory=str(blocked)), Request("train.py", overrides=("run.directory=x",))):
        with pytest.raises(EvidenceError):
            _session(config, asked)
