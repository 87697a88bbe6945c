"""Files that are whole at every moment, also after a power cut."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Replaces a file, or makes it: whoever reads it sees the former content or this one. Its mode is kept.

    Raises:
        OSError: It cannot be written; the former content is kept.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(draft, path.stat().st_mode & 0o7777)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    _sync_folder(path.parent)


def write_beside(path: Path, data: bytes, ending: str) -> Path:
    """Writes a new file beside another, such as ``c.yaml.20260301T123005Z.bak``; none is ever written over.

    Returns:
        The new file.

    Raises:
        OSError: It cannot be written.
    """
    for number in range(1000):
        new = path.with_name(f"{path.name}.{ending}{f'.{number}' if number else ''}.bak")
        try:
            handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            continue
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        _sync_folder(path.parent)
        return new
    raise FileExistsError(f"a thousand backups of {path.name} are there already")


def _sync_folder(folder: Path) -> None:
    """Makes the new name last; file systems that cannot sync a folder are let be."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
