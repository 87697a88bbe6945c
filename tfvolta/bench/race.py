"""Contenders side by side: each is started and compiled, then they take turns epoch by epoch, in random order.

What disturbs the machine for longer than an epoch disturbs all of them alike, so that the ratio of two epochs of one
round says more than the two times do.
"""

from __future__ import annotations

import dataclasses
import random
import select
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Callable, Optional, Sequence

from tfvolta.bench.contender import Contender, Course, command
from tfvolta.bench.entrant import Entrant, slug
from tfvolta.bench.measured import Ending, Lap
from tfvolta.bench.turns import Lines
from tfvolta.launch.guardian import Guardian

_LOOK_SECONDS = 0.05


@dataclasses.dataclass
class Runs:
    """All processes of one contender.

    Attributes:
        laps: One a seed, those that were measured to the end.
        ending: How the contender ended.
        reason: Why it was not measured.
        command: Of its first process.
    """

    contender: Contender
    laps: list[Lap] = dataclasses.field(default_factory=list)
    ending: Ending = Ending.MEASURED
    reason: str = ""
    command: tuple[str, ...] = ()


class Race:
    """Measures contenders.

    Args:
        course: What they train.
        folder: Takes their output and evidence.
        limit_seconds: For the start of a process with its first epochs, and for every turn.
        together: Whether they start and compile at the same time, which takes less time and is not timed as well.
        say: Told what happens, in a line.
    """

    def __init__(
        self, course: Course, folder: Path, limit_seconds: float, together: bool, say: Callable[[str], None]
    ) -> None:
        self._course = course
        self._folder = folder
        self._limit_seconds = limit_seconds
        self._together = together
        self._say = say
        self._place: dict[str, int] = {}

    def run(self, contenders: Sequence[Contender], seeds: Sequence[int]) -> list[Runs]:
        """Measures all of them with one seed after the other; one that fails is left out, and the others go on.

        Whatever happens, no process is left.
        """
        # Once, so that a config which somebody edits meanwhile is the matter of its contender alone.
        entrants = [[self._entrant(each, seed) for seed in seeds] for each in contenders]
        runs = [Runs(each, command=of_each[0].command) for each, of_each in zip(contenders, entrants)]
        sockets = tempfile.mkdtemp(prefix="tfvolta-bench-")
        guardian = Guardian(sockets)
        try:
            for number in range(len(seeds)):
                pairs = [(each, of_each[number]) for each, of_each in zip(runs, entrants)]
                going = [(each, entrant) for each, entrant in pairs if each.ending is Ending.MEASURED]
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                    path = f"{sockets}/{number}"
                    listener.bind(path)
                    listener.listen(len(going) or 1)
                    self._measure(going, guardian, listener)
        finally:
            guardian.close()
            shutil.rmtree(sockets, ignore_errors=True)
        return runs

    def _entrant(self, contender: Contender, seed: int) -> Entrant:
        words = command(contender, self._course, seed, self._folder / slug(contender.name))
        return Entrant(contender, words, seed, self._folder)

    def _measure(self, going: list[tuple[Runs, Entrant]], guardian: Guardian, listener: socket.socket) -> None:
        entrants = [entrant for _, entrant in going]
        try:
            self._start(entrants, guardian, listener)
            self._take_turns([each for each in entrants if each.ending is None], listener)
            for runs, entrant in going:
                self._collect(runs, entrant)
        finally:
            for entrant in entrants:
                entrant.end()

    def _start(self, entrants: list[Entrant], guardian: Guardian, listener: socket.socket) -> None:
        """Starts all, and has them train their warm-up epochs."""
        warm = self._course.warmup_epochs
        for group in [entrants] if self._together else [[each] for each in entrants]:
            for each in group:
                each.start(guardian, listener.getsockname())
            for each in group:
                if self._until(each, warm, entrants, listener, "start, compilation and warm-up"):
                    first = each.epochs[0].seconds
                    self._say(f"{each.contender.name}: ready (seed {each.seed}; first epoch {first:.1f} s)")

    def _take_turns(self, entrants: list[Entrant], listener: socket.socket) -> None:
        order = random.Random(entrants[0].seed if entrants else 0)
        for turn in range(self._course.rounds):
            going = [each for each in entrants if each.ending is None]
            order.shuffle(going)
            for place, each in enumerate(going):
                self._place[each.contender.name] = place
                assert each.lines is not None
                each.lines.go()
                self._until(each, len(each.epochs) + 1, going, listener, f"round {turn + 1}")
            said = ", ".join(f"{e.contender.name} {e.epochs[-1].seconds:.3f} s" for e in going if e.ending is None)
            self._say(f"round {turn + 1} of {self._course.rounds}: {said}")
        for each in entrants:
            if each.ending is None and each.lines is not None:
                each.take_evidence()
                each.lines.go()
                self._until(each, None, entrants, listener, "its end")

    def _collect(self, runs: Runs, entrant: Entrant) -> None:
        if entrant.ending is None:
            runs.laps.append(entrant.lap(self._course.warmup_epochs))
            return
        runs.ending, runs.reason = entrant.ending, entrant.reason
        self._say(f"{runs.contender.name}: {runs.ending.value}: {runs.reason} (output: {entrant.log})")

    def _until(
        self,
        awaited: Entrant,
        epochs: Optional[int],
        entrants: Sequence[Entrant],
        listener: socket.socket,
        what: str,
    ) -> bool:
        """Listens until one contender has done something; False where it has failed and was ended.

        Args:
            awaited: Whom to wait for.
            epochs: How many epochs it must have trained; None for the end of its process.
            entrants: Who else may say something or connect.
            listener: Takes connections.
            what: What is waited for, in words.
        """
        deadline = time.monotonic() + self._limit_seconds
        while not awaited.has_done(epochs):
            ended = not awaited.runs
            self._listen(entrants, listener)
            if ended and not awaited.has_done(epochs):
                awaited.explain()
            elif time.monotonic() > deadline:
                awaited.fail(Ending.TIMEOUT, f"{what}: not done after {self._limit_seconds:g} s")
            if awaited.ending is not None:
                awaited.end()
                return False
        return True

    def _listen(self, entrants: Sequence[Entrant], listener: socket.socket) -> None:
        """Takes new connections and what was said; waits a moment where there is nothing."""
        speaking = {each.lines.handle: each for each in entrants if each.lines is not None and each.lines.is_open}
        readable, _, _ = select.select([listener.fileno(), *speaking], [], [], _LOOK_SECONDS)
        for handle in readable:
            if handle == listener.fileno():
                self._admit(entrants, Lines(listener.accept()[0]))
                continue
            self._hear(speaking[handle])

    def _admit(self, entrants: Sequence[Entrant], lines: Lines) -> None:
        """Finds out who has connected: a contender says its name first."""
        until = time.monotonic() + self._limit_seconds
        name: Optional[str] = None
        early = []
        while name is None and lines.is_open and time.monotonic() < until:
            select.select([lines.handle], [], [], _LOOK_SECONDS)
            for message in lines.read():
                if message.get("kind") == "hello":
                    name = str(message.get("name"))
                else:
                    early.append(message)
        found = next((each for each in entrants if each.contender.name == name and each.lines is None), None)
        if found is None:
            lines.close()
            return
        found.lines = lines
        for message in early:
            found.hear(message, None)

    def _hear(self, entrant: Entrant) -> None:
        assert entrant.lines is not None
        for message in entrant.lines.read():
            measured = len(entrant.epochs) >= self._course.warmup_epochs
            entrant.hear(message, self._place.get(entrant.contender.name) if measured else None)
