"""What can be wrong with the folder of checkpoints, found out before training where it can be."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Optional

from tfvolta.errors import Problem

# Why a folder or file cannot be written, by error number.
REASONS = {
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENOTDIR: "a file is in the way",
    errno.EEXIST: "a file is in the way",
    errno.ENAMETOOLONG: "the name is too long for the file system",
}
_FIX = "set checkpoint.directory to a folder that this user can write"
_SPACE_FIX = "free some space, lower checkpoint.keep, or set checkpoint.directory to another disk"


def place(directory: Path) -> str:
    """The folder, for ``Problem.where``."""
    return f"checkpoint.directory: {directory}"


def reason(error: OSError) -> str:
    """Why the operating system refused."""
    return REASONS.get(error.errno or 0, f"the operating system refused it: {error.strerror or error}")


def prepare(directory: Path, needed_bytes: int) -> Optional[Problem]:
    """Makes the folder and writes a file into it; what is wrong, or None.

    Args:
        directory: The folder of checkpoints.
        needed_bytes: Bytes of one checkpoint.
    """
    trial = directory / f".trial-{os.getpid()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"tfvolta")
        trial.unlink()
    except OSError as error:
        received = f"{type(error).__name__}: {error.strerror or error}"
        return Problem(place(directory), "a folder in which checkpoints can be written", received, reason(error), _FIX)
    free = shutil.disk_usage(directory).free
    if free < needed_bytes:
        return Problem(
            where=place(directory),
            expected=f"room for a checkpoint of {needed_bytes / 2**20:.0f} MiB",
            received=f"{free / 2**20:.0f} MiB free",
            why="the first checkpoint would fill the disk",
            fix=_SPACE_FIX,
        )
    return None


def sync_files(folder: Path) -> None:
    """Waits until every file of a folder, and the folder, are on the disk."""
    for each in [*folder.iterdir(), folder]:
        sync(each)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
