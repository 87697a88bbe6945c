"""A run's evidence on disk: one folder a run, one JSON file that is whole at every moment."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import secrets
import threading
from pathlib import Path
from typing import Optional, Union

from tfvolta.errors import EvidenceError, Problem
from tfvolta.evidence.clock import now, stamp
from tfvolta.evidence.place import WORKERS, Place
from tfvolta.evidence.reading import FILE_NAME, latest, read
from tfvolta.evidence.schema import Evidence

__all__ = ["EvidenceStore", "latest", "new_run_id", "read"]

_Path = Union[str, "os.PathLike[str]"]
# Says which process owns a folder that others may have made before it.
_OWNER = ".owner"

# Why a write failed and what to do, by error number.
_REASONS = {
    errno.EACCES: ("this user may not write there", "choose a folder of yours: run.directory=~/runs"),
    errno.EPERM: ("this user may not write there", "choose a folder of yours: run.directory=~/runs"),
    errno.EROFS: ("the file system is read-only", "choose a folder on a writable disk: run.directory=/tmp/runs"),
    errno.ENOSPC: ("the disk is full", "free some space, or choose another disk: run.directory=/tmp/runs"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or choose another disk: run.directory=/tmp/runs"),
    errno.EFBIG: ("the file would exceed the limit on file sizes", "raise it: ulimit -f unlimited"),
    errno.ENOTDIR: ("a file is in the way", "remove that file, or choose another folder: run.directory=runs"),
    errno.EEXIST: ("a file is in the way", "remove that file, or choose another folder: run.directory=runs"),
    errno.ENAMETOOLONG: ("the name is too long for the file system", "choose a shorter run.directory"),
    errno.ENOENT: ("the folder cannot be made there", "choose another folder: run.directory=runs"),
}


def _cannot_write(path: Path, error: OSError) -> EvidenceError:
    why, fix = _REASONS.get(error.errno or 0, ("the operating system refused it", "choose another run.directory"))
    problem = Problem(
        where=f"run.directory: {path}",
        expected="a folder in which the run's evidence can be written",
        received=f"{type(error).__name__}: {error.strerror or error}",
        why=why,
        fix=fix,
    )
    return EvidenceError("The evidence of this run cannot be written.", [problem])


def new_run_id() -> str:
    """A name for a run, from the time, that two runs of one second hardly share."""
    return f"{stamp()}-{secrets.token_hex(2)}"


def _check_run_id(run_id: str) -> None:
    if not run_id or run_id.startswith(".") or any(char in run_id for char in "/\\\0"):
        problem = Problem(
            where="run id",
            expected="a plain folder name",
            received=repr(run_id),
            fix="leave it out, and a name is made from the time",
        )
        raise EvidenceError("This run id cannot be used.", [problem])


class EvidenceStore:
    """The folder of one run.

    Attributes:
        run_id: Name of the run and of its folder.
        directory: The folder.
        path: Its evidence file.
    """

    def __init__(self, directory: Path, run_id: Optional[str] = None):
        self.directory = directory
        self.run_id = run_id or directory.name
        self.path = directory / FILE_NAME

    @classmethod
    def create(cls, directory: _Path, run_id: Optional[str] = None) -> EvidenceStore:
        """Makes the folder of a new run, and the folder of runs where it is missing.

        Args:
            directory: Folder of runs; ``~`` is the home folder.
            run_id: Name of the run; made from the time, and unique, when absent.

        Raises:
            EvidenceError: The folder cannot be made, or the run exists.
        """
        if run_id is not None:
            _check_run_id(run_id)
        parent = _made(Path(directory).expanduser().absolute())  # the script may change the working directory
        return cls(_make_named(parent, run_id) if run_id is not None else _make_unique(parent))

    @classmethod
    def claim(cls, directory: _Path, place: Place) -> EvidenceStore:
        """Makes the folder of one process of a run, which no other process has.

        Under a launcher the chief's is the run's own folder, and ``workers/worker-1`` in it another's. Who comes too
        late for such a name, as a second session of a process does, and who has no launcher, gets a name from the time.

        Args:
            directory: Folder of runs; ``~`` is the home folder.
            place: Which process this is.

        Raises:
            EvidenceError: The folder cannot be made.
        """
        parent = _made(Path(directory).expanduser().absolute())
        if place.run_id is not None:
            _check_run_id(place.run_id)
            own = parent / place.run_id / WORKERS / place.folder if place.folder else parent / place.run_id
            if _is_first(_made(own)):
                return cls(own, place.run_id)
        return cls(_make_unique(parent, f"-{place.folder}" if place.folder else ""))

    def write(self, evidence: Evidence) -> None:
        """Replaces the evidence file; a process killed at any moment leaves the former or the new one, whole.

        Raises:
            EvidenceError: It cannot be written; the former one is kept.
        """
        content = json.dumps(evidence.updated_with(updated=now()).model_dump(mode="json"), indent=1, allow_nan=False)
        temporary = self.directory / f".{FILE_NAME}.{os.getpid()}.{threading.get_ident()}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)  # somebody may have tidied up while training ran
            _write_durably(temporary, content + "\n")
            os.replace(temporary, self.path)
            _sync_folder(self.directory)
        except OSError as error:
            _remove(temporary)
            raise _cannot_write(self.path, error) from error


def _made(folder: Path) -> Path:
    """A folder that is there or is made now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except ValueError as error:  # a NUL character
        raise _cannot_write(folder, OSError(errno.EINVAL, str(error))) from error
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return folder


def _is_first(folder: Path) -> bool:
    """Whether this process is the first to claim a folder that several may have made: the file system decides."""
    try:
        handle = os.open(folder / _OWNER, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        raise _cannot_write(folder, error) from error
    with os.fdopen(handle, "w") as file:
        file.write(f"{platform.node()} {os.getpid()}\n")
    return True


def _make_named(parent: Path, run_id: str) -> Path:
    folder = parent / run_id
    try:
        folder.mkdir()
    except FileExistsError as error:
        problem = Problem(
            where=f"run.directory: {folder}",
            expected="a run id that is not taken",
            received=f"{run_id}, which exists",
            fix="choose another run id, or leave it out",
        )
        raise EvidenceError("This run exists already.", [problem]) from error
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return folder


def _make_unique(parent: Path, ending: str = "") -> Path:
    """Makes a folder that no other process has: the file system decides, so two runs may start in one second."""
    for _ in range(100):
        folder = parent / f"{new_run_id()}{ending}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_write(folder, error) from error
        return folder
    raise _cannot_write(parent, FileExistsError(errno.EEXIST, "a hundred run ids in a row were taken"))


def _write_durably(path: Path, content: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Makes the new name survive a power cut; file systems that cannot sync a folder are let be."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
