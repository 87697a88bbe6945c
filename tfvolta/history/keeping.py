"""Puts what a run applies into its folder, before it trains."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path
from typing import Any, Optional

from tfvolta.config.given import Given
from tfvolta.evidence.clock import now
from tfvolta.history.applied import FILE_NAME, Applied, files_of, machine_hash
from tfvolta.history.commit import commit_of
from tfvolta.history.durable import write_durably

_MOST_SOURCES = 200


def keep(folder: Path, run_id: str, given: Given, script: Optional[str], facts: Any) -> Applied:
    """Writes what a run applies.

    Args:
        folder: Of the run; it is there.
        run_id: Its name.
        given: What its config was loaded from.
        script: The training script; this process's own where None.
        facts: The machine.

    Raises:
        OSError: It cannot be written.
    """
    import tfvolta

    script = script or _own_script()
    files = files_of(given)
    place = os.path.dirname(script) if script else os.getcwd()
    parts = [*([script] if script else []), *(file.path for file in files if not file.is_template)]
    applied = Applied(
        run_id=run_id,
        written=now(),
        reference=given.reference,
        files=files,
        overrides=given.overrides,
        script=script,
        sources=sources(script) if script else {},
        commit=commit_of(place, tuple(parts)),
        tfvolta=tfvolta.__version__,
        machine=machine_hash(facts),
    )
    write_durably(folder / FILE_NAME, (applied.model_dump_json(indent=1) + "\n").encode())
    return applied


@functools.cache
def sources(script: str) -> dict[str, str]:
    """SHA-256 of a script and of the Python files beside it, by name, as they were when this process first asked."""
    path = Path(script)
    found = {}
    for file in [path, *sorted(path.parent.glob("*.py"))[:_MOST_SOURCES]]:
        try:
            found[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError:  # a broken link, or a file of another user
            continue
    return found


def _own_script() -> Optional[str]:
    """The file that this process was started with; None for an interpreter without one."""
    path = os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    return path if path.endswith(".py") and os.path.isfile(path) else None
