"""What a ladder has measured on the script of a run, under the same settings."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from tfvolta.evidence.schema import Evidence

FILE_NAME = "ladder.json"
_APART = ("run", "monitor", "checkpoint")  # sections that no rung adds


def ladder_of(evidence: Evidence, directory: Path) -> Optional[tuple[str, Mapping[str, Any]]]:
    """The latest ladder on the same script with the same arguments, settings and stack, on the same machine.

    Args:
        evidence: Of the run.
        directory: Folder of runs, in which ladders have folders of their own.

    Returns:
        Path and content of its file; None where there is none.
    """
    files = sorted(directory.glob(f"*/{FILE_NAME}"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in files:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if _is_of(found, evidence):
                return str(file), found
        except (OSError, ValueError, AttributeError, TypeError):  # half-written, or something else of that name
            continue
    return None


def own_arguments(evidence: Evidence) -> Sequence[str]:
    """The script's own arguments: what follows it on the command line."""
    words, script = list(evidence.command), evidence.script or ""
    for number, word in enumerate(words):
        if os.path.normpath(os.path.join(evidence.cwd, word)) == script:
            return words[number + 1 :]
    return []


def _is_of(found: Mapping[str, Any], evidence: Evidence) -> bool:
    return bool(
        found.get("path") == evidence.script
        and list(found.get("arguments") or []) == list(own_arguments(evidence))
        and found.get("stack") == evidence.stack
        and found.get("host") == evidence.host
        and _settings(found.get("values") or {}) == _settings(evidence.config.values)
    )


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _APART and value is not None}
