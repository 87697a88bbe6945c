"""The git commit of a project, and what differs from it."""

from __future__ import annotations

import functools
import os
import subprocess
from typing import Optional, Sequence

from pydantic import Field

from tfvolta.evidence.schema import Record
from tfvolta.evidence.values import Text

# A repository on a slow disk must not hold training up.
_LIMIT_SECONDS = 5.0
_MOST_NAMES = 20


class Commit(Record):
    """Where a project stood.

    Attributes:
        id: Of the commit that was checked out.
        dirty: Whether tracked files differed from it; null where git took too long to say.
        changed: The first twenty of those, relative to the repository's top.
        untracked: Files of the run that no commit holds: the script, or a config.
    """

    id: str = Field(min_length=1)
    dirty: Optional[bool] = None
    changed: tuple[Text, ...] = ()
    untracked: tuple[Text, ...] = ()


@functools.cache
def commit_of(folder: str, files: Sequence[str] = ()) -> Optional[Commit]:
    """The commit that a folder's files come from, as it was when this process first asked.

    Args:
        folder: Any folder of the project.
        files: What the run is made of; says which of them no commit holds. A tuple.

    Returns:
        None outside a repository, before its first commit, or without git.
    """
    head = _git(folder, "rev-parse", "--verify", "HEAD")
    if head is None or not head.strip():
        return None
    status = _git(folder, "status", "--porcelain", "-z", "--untracked-files=no")
    changed = _names(status)
    own = [os.path.relpath(file, folder) for file in files if os.path.exists(file)]
    tracked = _git(folder, "ls-files", "-z", "--", *own) if own else None
    known = set((tracked or "").split("\0"))
    return Commit(
        id=head.strip(),
        dirty=None if status is None else bool(changed),
        changed=tuple(changed[:_MOST_NAMES]),
        untracked=() if tracked is None else tuple(name for name in own if name not in known),
    )


def _names(status: Optional[str]) -> list[str]:
    """Paths of ``git status -z``; a rename has a second one, of what it was called."""
    found, parts = [], iter((status or "").split("\0"))
    for part in parts:
        if part:
            found.append(part[3:])
            if "R" in part[:2] or "C" in part[:2]:
                next(parts, None)
    return found


def _git(folder: str, *words: str) -> Optional[str]:
    # Without optional locks git does not write the index, which another git may be using.
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", folder, *words],
            capture_output=True,
            timeout=_LIMIT_SECONDS,
            env=environ,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "backslashreplace") if done.returncode == 0 else None
