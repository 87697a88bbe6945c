"""Signs of life: how far each worker of a run has come, in a folder that the launcher and the other workers can read.

Two files a worker. ``worker-1.json`` is replaced as a whole, at most once a second. ``worker-1.steps`` holds four
numbers that are changed in place with every batch: memory that is shared with the file, so that a batch costs no
system call and the last numbers outlive a process that is killed. They are kept in local folders only, for file
systems of several machines do not share memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import platform
import struct
import time
from pathlib import Path
from typing import Any, Iterator, Optional, Union

# Numbers of a counter file, in this order: batches begun, batches ended, other progress, the epoch.
BEGUN, ENDED, OTHER, EPOCH = range(4)
_COUNTERS = struct.Struct("=4Q")
STATES = ("starting", "first step", "training", "evaluating", "between fits", "stalled", "serving")


@dataclasses.dataclass(frozen=True)
class Heartbeat:
    """How far one worker has come, as it last said.

    Attributes:
        worker: Such as ``worker 1``.
        rank: Its number among all of the run; None where it has none.
        pid: Its process.
        host: Its machine.
        state: What it does: one of ``STATES``.
        begun: Number of the step that it began last, counted as the optimiser counts.
        ended: Number of the step that it ended last.
        epoch: Number of its epoch, from 0.
        progressed: Seconds since 1970 at which it last made progress.
        written: Seconds since 1970 at which this was written.
        limit_seconds: How long it may be without progress in its present state; None where nobody watches.
        answers: Whether SIGUSR1 makes it write the stacks of its threads.
        ends: Whether its watchdog ends it when it stands still.
    """

    worker: str
    rank: Optional[int] = None
    pid: int = 0
    host: str = ""
    state: str = "starting"
    begun: int = 0
    ended: int = 0
    epoch: int = 0
    progressed: float = 0.0
    written: float = 0.0
    limit_seconds: Optional[float] = None
    answers: bool = False
    ends: bool = False

    @property
    def is_training(self) -> bool:
        """Whether it is inside a fit."""
        return self.state in ("first step", "training", "evaluating", "stalled")


def file_stem(worker: str) -> str:
    """The name of a worker as a file's, such as ``worker-1``."""
    return worker.replace(" ", "-")


class HeartbeatFile:
    """What one worker writes.

    Attributes:
        counts: Four numbers to be changed in place: see ``BEGUN``, ``ENDED``, ``OTHER`` and ``EPOCH``.
        path: The JSON file.
    """

    def __init__(self, folder: Union[str, os.PathLike[str]], worker: str, rank: Optional[int], shared: bool = False):
        """Opens the files of a worker.

        Args:
            folder: Made where it is missing.
            worker: Such as ``worker 1``.
            rank: Its number among all of the run.
            shared: Whether the folder lies on a file system of several machines; then there is no counter file.

        Raises:
            OSError: The folder or a file cannot be made.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self.path = place / f"{file_stem(worker)}.json"
        self._who = {"worker": worker, "rank": rank, "pid": os.getpid(), "host": platform.node()}
        self.counts = memoryview(bytearray(_COUNTERS.size) if shared else _mapped(self.path.with_suffix(".steps")))
        self.counts = self.counts.cast("B").cast("Q")
        self.counts[:] = memoryview(bytes(_COUNTERS.size)).cast("Q")

    def write(self, state: str, progressed: float, limit_seconds: Optional[float] = None, **says: bool) -> None:
        """Replaces the JSON file. A disk that fails is no reason to stop training.

        Args:
            state: What the worker does, one of ``STATES``.
            progressed: Seconds since 1970 at which it last made progress.
            limit_seconds: How long it may be without, or None.
            says: ``answers`` and ``ends`` of ``Heartbeat``.
        """
        begun, ended, _, epoch = self.counts
        content = {
            **self._who,
            "state": state,
            "begun": begun,
            "ended": ended,
            "epoch": epoch,
            "progressed": progressed,
            "written": time.time(),
            "limit_seconds": limit_seconds,
            **says,
        }
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(content), encoding="utf-8")
            os.replace(draft, self.path)


def _mapped(path: Path) -> mmap.mmap:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(handle, _COUNTERS.size)
        return mmap.mmap(handle, _COUNTERS.size)
    finally:
        os.close(handle)


def read_heartbeats(folder: Union[str, os.PathLike[str]]) -> tuple[Heartbeat, ...]:
    """What the workers of a run last said, by rank; those who have not spoken are missing."""
    found = (_read(path) for path in sorted(Path(folder).glob("*.json")))
    known = [beat for beat in found if beat is not None]
    return tuple(sorted(known, key=lambda beat: (beat.rank is None, beat.rank or 0, beat.worker)))


def _read(path: Path) -> Optional[Heartbeat]:
    content = _content(path)
    if content is None:
        return None
    # Counters are newer than the JSON beside them, and never older.
    with contextlib.suppress(OSError, struct.error):
        begun, ended, _, epoch = _COUNTERS.unpack(path.with_suffix(".steps").read_bytes())
        content.update(begun=begun, ended=ended, epoch=epoch)
    return Heartbeat(**content)


def _content(path: Path) -> Optional[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("worker"), str):
        return None
    return dict(_known(content))


def _known(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields of this version; a newer one may write more."""
    names = {field.name for field in dataclasses.fields(Heartbeat)}
    return ((name, value) for name, value in content.items() if name in names)
