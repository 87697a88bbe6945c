"""Which process of a run this is, and its first sign of life for the launcher and the other workers."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from typing import Any, Mapping, Optional

from tfvolta.cluster import resolve
from tfvolta.errors import ClusterError
from tfvolta.evidence.heartbeat import HeartbeatFile, file_stem
from tfvolta.evidence.place import Place

# One file a process, whatever sessions it opens: (folder, worker, process) -> file.
_files: dict[tuple[str, str, int], HeartbeatFile] = {}
_STDERR = 2


def place_of(environ: Mapping[str, str], config: Any, facts: Any) -> Place:
    """The place of this process in its run. A cluster that cannot be used is the plan's to refuse, not this one's."""
    try:
        cluster = resolve(environ, config, facts)
    except ClusterError:
        cluster = None
    return Place.of(environ, cluster)


def heartbeat_of(place: Place, folder: str) -> Optional[HeartbeatFile]:
    """This process's heartbeat file in the launcher's folder, or in another where there is no launcher.

    Args:
        place: Which process this is.
        folder: Where to write without a launcher; it may be shared by several machines.

    Returns:
        None where it cannot be written.
    """
    key = (place.heartbeats or folder, place.worker or "worker 0", os.getpid())
    if key not in _files:
        with contextlib.suppress(OSError):
            _claim(key[0], key[1])
            _files[key] = HeartbeatFile(key[0], key[1], place.rank, shared=place.heartbeats is None)
    return _files.get(key)


def _claim(folder: str, worker: str) -> None:
    """A process that a worker starts inherits its environment, and must not speak in its name.

    Raises:
        FileExistsError: Another process speaks for that worker.
    """
    os.makedirs(folder, exist_ok=True)
    os.close(os.open(os.path.join(folder, f".{file_stem(worker)}.owner"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def announce(place: Place) -> None:
    """Tells the launcher that this worker is there, and makes it write its stacks when the launcher asks."""
    if place.heartbeats is None:
        return
    known = (place.heartbeats, place.worker or "worker 0", os.getpid()) in _files
    file = heartbeat_of(place, place.heartbeats)
    if file is not None and not known:
        file.write("starting", time.time(), answers=answers_signals())


def answers_signals() -> bool:
    """Makes SIGUSR1 write the stacks of all threads to standard error; False where the script uses that signal."""
    if not hasattr(signal, "SIGUSR1"):
        return False
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            faulthandler.register(signal.SIGUSR1, file=_stderr(), all_threads=True, chain=False)
            return True
    return False


def _stderr() -> Any:
    """The process's own standard error, also where the script has replaced ``sys.stderr``."""
    return sys.__stderr__ if sys.__stderr__ is not None else _STDERR
