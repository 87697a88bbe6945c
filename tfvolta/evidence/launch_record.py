"""How a launcher saw its workers end, beside their own evidence: one that was killed cannot say so itself."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Mapping, Union

LAUNCH_FILE = "launch.json"
_Path = Union[str, "os.PathLike[str]"]


def write_launch(folder: _Path, content: Mapping[str, Any]) -> None:
    """Puts how a launch ended into the run's folder; where no worker made one, there is nothing to add to.

    Args:
        folder: Of the run.
        content: ``ended``, a sentence for each worker by its name, and more for programs; JSON values.
    """
    place = Path(folder)
    draft = place / f".{LAUNCH_FILE}.{os.getpid()}"
    if place.is_dir():
        with contextlib.suppress(OSError):  # a full disk must not hide how the workers ended
            draft.write_text(json.dumps(dict(content), indent=1) + "\n", encoding="utf-8")
            os.replace(draft, place / LAUNCH_FILE)


def read_endings(folder: _Path) -> dict[str, str]:
    """How each worker ended, in words, by its name; empty for a run without a launcher, or one that still runs."""
    try:
        content = json.loads((Path(folder) / LAUNCH_FILE).read_text(encoding="utf-8"))
        return {str(name): str(text) for name, text in content["ended"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
