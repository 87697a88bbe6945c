"""How several workers, one of which was told to end, stop after the same step.

Steps of several workers are tied together by collectives: a worker that stops earlier than another leaves that one
waiting. So each worker tells the others which call of the train function it has begun, begins no further one until all
have told, and goes on to the furthest. Telling is done by a thread of its own, for the training thread may be inside a
collective that waits for the others; no worker can wait for another that waits for it, because everybody can finish the
calls that anybody has begun.

The workers tell each other through files in the folder of checkpoints, which all of them see.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path
from typing import Optional

POLL_SECONDS = 0.2
ANSWER_SECONDS = 20.0  # Kubernetes and Slurm end a process 30 s after they asked it to


class Board:
    """Files by which the workers of one fit tell each other how far they are."""

    def __init__(self, folder: Path, rank: int):
        self._folder = folder
        self._rank = rank

    def open(self) -> None:
        """Makes the folder; the chief does so before the others look."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def tell(self, begun: int) -> None:
        """Says how many calls this worker has begun."""
        unfinished = self._folder / f".rank-{self._rank}"
        with contextlib.suppress(FileNotFoundError):  # the chief has removed the folder: the fit has ended everywhere
            unfinished.write_text(str(begun), encoding="ascii")
            os.replace(unfinished, self._folder / f"rank-{self._rank}")

    def told(self) -> dict[int, int]:
        """What was said so far, by rank."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return {}
        found = {}
        for name in names:
            if name.startswith("rank-"):
                with contextlib.suppress(FileNotFoundError):  # the chief has removed the folder
                    found[int(name[len("rank-") :])] = int((self._folder / name).read_text(encoding="ascii"))
        return found

    def close(self) -> None:
        """Removes the folder; the chief does so when all have ended."""
        shutil.rmtree(self._folder, ignore_errors=True)


class StopAgreement:
    """When this worker stops.

    Attributes:
        failed: Whether the others did not answer in time, so that this worker stops without them.
    """

    def __init__(self, size: int, board: Optional[Board] = None, answer_seconds: float = ANSWER_SECONDS):
        """Starts to listen.

        Args:
            size: Number of workers.
            board: Where they tell each other; None for one worker.
            answer_seconds: How long the others are waited for.
        """
        self.failed = False
        self._size, self._board, self._answer_seconds = size, board, answer_seconds
        self._changed = threading.Condition()
        self._begun = 0
        self._asked = self._told = self._closed = False
        self._last: Optional[int] = None
        self._listener = threading.Thread(target=self._listen, name="tfvolta-stop", daemon=True)
        if board is not None:
            self._listener.start()

    def ask(self) -> None:
        """This worker was told to end; from any thread."""
        with self._changed:
            self._asked = True
            if self._board is None:
                self._last = self._begun
            self._changed.notify_all()

    @property
    def asked(self) -> bool:
        """Whether this worker, or another, was told to end."""
        return self._asked or self._told

    def begin_call(self) -> bool:
        """To be asked before each call of the train function: False where this worker stops before it."""
        with self._changed:
            self._wait_for_others()
            if self._last is not None and self._begun >= self._last:
                return False
            self._begun += 1
            return True

    def is_over(self) -> bool:
        """Whether this worker stops now; asked where no call follows at once, as at the start of an epoch."""
        with self._changed:
            self._wait_for_others()
            return self._last is not None and self._begun >= self._last

    def close(self) -> None:
        """Stops listening."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._listener.is_alive():
            self._listener.join(timeout=self._answer_seconds)

    def _wait_for_others(self) -> None:
        """Waits while this worker has told and the others have not; holds the lock."""
        if self._told and self._last is None:
            answered = self._changed.wait_for(lambda: self._last is not None or self._closed, self._answer_seconds)
            if not answered:
                self.failed, self._last = True, self._begun

    def _listen(self) -> None:
        board = self._board
        assert board is not None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._asked and not self._told), POLL_SECONDS)
                if self._closed or self._last is not None:
                    return
                begun = self._begun
            told = board.told()
            if not self._told and (self._asked or told):
                with self._changed:
                    self._told, begun = True, self._begun
                board.tell(begun)
            elif self._told and len(told) == self._size:
                with self._changed:
                    self._last = max(told.values())
                    self._changed.notify_all()
