"""Files of a search that cannot be written: why, what is left, and what to do."""

from __future__ import annotations

import errno
from pathlib import Path

from tfvolta.errors import Problem, TuneError


def cannot_write(path: Path, error: OSError) -> TuneError:
    """Why a file of the search cannot be written, with what is left."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    problem = Problem(
        where=str(path),
        expected="room to keep what was measured",
        received=f"{type(error).__name__}: {error.strerror or error}",
        why="the disk is full" if full else "the operating system refuses it",
        fix="free some space and run the same command, which goes on after the last trial that was kept"
        if full
        else "choose a folder that can be written: --directory DIR",
    )
    return TuneError("The search cannot keep its trials. What was kept before is whole.", [problem])
