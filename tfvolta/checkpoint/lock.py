"""One training at a time in a folder of checkpoints: a second one would remove what the first is writing.

The lock is the kernel's and ends with the process, however that ends. Source: flock(2). Where a file system has none,
nothing is held.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Optional

_held: dict[str, int] = {}


def hold(directory: Path) -> Optional[str]:
    """Takes a folder of checkpoints for this process; fits of one process follow each other and share it.

    Returns:
        None, or who has it: ``process 4711 on node1``.
    """
    # Beside the folder, which is moved away where its checkpoints are set aside.
    path = os.path.abspath(directory.with_name(f".{directory.name}.lock"))
    if path in _held:
        return None
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            text = os.read(handle, 1000).decode(errors="replace").strip()
            os.close(handle)
            return (text or "another process") if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
        if _is_at(handle, path):
            break
        os.close(handle)  # its holder has removed the file meanwhile
    with contextlib.suppress(OSError):  # a full disk: then nobody can tell who has it
        os.truncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    _held[path] = handle
    return None


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def release(directory: Path) -> None:
    """Gives the folder to others; nothing happens where it was not held."""
    path = os.path.abspath(directory.with_name(f".{directory.name}.lock"))
    handle = _held.pop(path, None)
    if handle is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(handle)
