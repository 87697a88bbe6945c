"""The file in which searches are kept: Optuna's journal, one JSON object a line, only ever added to.

A line is whole or not there: what a crash or a full disk left of the last one is put aside before the file is read.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tfvolta.errors import Problem, TuneError
from tfvolta.tune.write_fault import cannot_write

FILE_NAME = "history.journal"


class _NoLock:
    """The folder is held by this process, so that nobody else writes."""

    def acquire(self) -> bool:
        """Nothing to wait for."""
        return True

    def release(self) -> None:
        """Nothing to give up."""


class _Backend(JournalFileBackend):  # type: ignore[misc]
    """A journal that leaves no half of a line, and says in words why it cannot be written."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds lines; none of them where one cannot be written.

        Raises:
            TuneError: The disk is full, or the file cannot be written for another reason.
        """
        path = Path(self._file_path)
        size = path.stat().st_size if path.exists() else 0
        try:
            super().append_logs(logs)
        except OSError as error:
            with contextlib.suppress(OSError):  # the next start puts the unfinished line aside
                os.truncate(path, size)
            raise cannot_write(path, error) from error


def open_journal(path: Path) -> Any:
    """Optuna's storage in a file.

    Raises:
        TuneError: The file is damaged in the middle, or cannot be read or made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _put_aside(path)
        return JournalStorage(_Backend(str(path), lock_obj=_NoLock()))
    except OSError as error:
        raise cannot_write(path, error) from error
    except TuneError:
        raise
    except Exception as error:  # whatever Optuna finds in lines that are JSON and no journal of its own
        raise _damaged(path, 0, f"{type(error).__name__}: {error}") from error


def _put_aside(path: Path) -> None:
    """Moves an unfinished last line to a file of its own.

    Raises:
        TuneError: A line before the last is no JSON object.
    """
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            found = json.loads(line)
        except ValueError as error:
            raise _damaged(path, number, str(error)) from error
        if not isinstance(found, dict) or "op_code" not in found:
            raise _damaged(path, number, "no entry of a journal")
    if len(whole) < len(content):
        with path.with_name(f"{path.name}.unfinished").open("ab") as file:
            file.write(content[len(whole) :] + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.truncate(path, len(whole))


def _damaged(path: Path, line: int, why: str) -> TuneError:
    problem = Problem(
        where=f"{path}:{line}" if line else str(path),
        expected="a history of searches: one JSON object a line",
        received=f"something else: {why}",
        why="trials of earlier searches are reused from it, and nothing is thrown away that might be wanted",
        fix=f"move it out of the way, and the search starts anew: mv {path} {path}.damaged",
    )
    return TuneError("The history of searches cannot be read. Nothing was changed.", [problem])
