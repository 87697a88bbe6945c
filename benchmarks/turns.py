"""Processes that compile at the same time and are then measured in turns, one epoch each, one on the device at a time.

    contenders = [Contender("ours", "resnet50", [...]), Contender("peer", "resnet50", [...], reference=True)]
    result = take_turns(contenders, Options(), folder)

Machines that are lent for minutes leave no time to start a process for each measurement. Here every process is
started and warmed up once (``--warm-up together``, ``leaders`` or ``serial``), then each round gives every process
one turn, in shuffled order or in ABBA order. What is compared was so measured within seconds of each other, and
rounds give pairs. A process that fails or is late is left out, with its reason. When the driver is interrupted, all
processes end. The side of a process is baton.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import random
import signal
import time
from typing import Any, Callable, Iterator, Optional, Sequence

from benchmarks.baton import PROFILE, STOP, TURN, WARM_UP
from benchmarks.turns_options import Options
from benchmarks.turns_process import FailureError, Process

Printer = Callable[[dict[str, Any]], None]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class Contender:
    """A process that is compared with the others of its group.

    Attributes:
        name: Unique in a measurement.
        group: What it is compared within.
        command: What to run; it takes its turns through a baton.
        environ: Its whole environment.
        reference: What the others of its group are divided by.
    """

    name: str
    group: str
    command: list[str]
    environ: dict[str, str]
    reference: bool = False


@dataclasses.dataclass
class Result:
    """What was measured.

    Attributes:
        rows: A turn each: contender, round, what the process reported, and ``wall_seconds`` as the driver saw them.
        facts: What each process said when it was ready, by name.
        left_out: Reasons by name.
        profiles: What profilers saw, by name.
        interrupted: Name of the signal that ended the measurement, if one did.
    """

    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    facts: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    profiles: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    interrupted: str = ""


class Interrupted(BaseException):
    """A signal asked the driver to end."""


def take_turns(
    contenders: Sequence[Contender], options: Options, folder: pathlib.Path, say: Printer = lambda row: None
) -> Result:
    """Measures; what was measured so far where a signal ends it. No process is left at the end.

    Args:
        contenders: In the order of the first round of ``abba``.
        options: How turns are given.
        folder: For the logs of the processes.
        say: Is given each row, and each contender that is ready or left out, as soon as it is known.

    Raises:
        ValueError: Names are not unique, a group has several references, or there is nothing to measure.
    """
    _check(contenders)
    result, began = Result(), time.monotonic()
    groups = list(dict.fromkeys(each.group for each in contenders))
    batches = [groups] if options.groups == "together" else [[group] for group in groups]
    try:
        with _signals():
            for number, batch in enumerate(batches):
                left = began + options.limit_seconds - time.monotonic()
                until = time.monotonic() + left / (len(batches) - number)  # what one does not use, the later ones get
                chosen = [each for each in contenders if each.group in batch]
                with _Driver(chosen, options, folder, result, say) as driver:
                    driver.start()
                    driver.warm_up(until)
                    driver.rounds(until)
                    driver.profiles(until)
                    driver.stop()
    except Interrupted as signalled:
        result.interrupted = str(signalled)
    return result


class _Driver:
    """The processes of some groups, from start to end."""

    def __init__(
        self, chosen: Sequence[Contender], options: Options, folder: pathlib.Path, result: Result, say: Printer
    ):
        self._chosen, self._options, self._result, self._say = list(chosen), options, result, say
        self._folder = folder
        self._up: dict[str, Process] = {}
        self._order = random.Random(options.seed)
        self._longest: dict[str, float] = {}

    def __enter__(self) -> _Driver:
        return self

    def start(self) -> None:
        """Starts every process."""
        for each in self._chosen:
            log = self._folder / f"{each.name.replace('/', '.')}.log"
            with self._kept(each.name):
                self._up[each.name] = Process(each.command, each.environ, log)

    def __exit__(self, *error: object) -> None:
        for process in self._up.values():
            process.end()

    def warm_up(self, until: float) -> None:
        """Lets the processes trace and compile; what waits for its turn imports and builds meanwhile."""
        names, limit = list(self._up), self._options.ready_seconds
        leaders = [each.name for each in self._chosen if each.reference and each.name in self._up]
        batches = {
            "together": [names],
            "leaders": [leaders, [name for name in names if name not in leaders]],
            "serial": [[name] for name in names],
        }
        if self._options.warm_up == "serial":
            self._wait(names, ("built",), min(until, time.monotonic() + limit))
        for batch in batches[self._options.warm_up]:
            events: tuple[str, ...] = ("built", "ready")
            if self._options.warm_up == "serial":
                events = ("ready",)
                self._begin(batch[0])
            self._wait(batch, events, min(until, time.monotonic() + limit))

    def _begin(self, name: str) -> None:
        if name in self._up:
            with self._kept(name):
                self._up[name].say(WARM_UP)

    def rounds(self, until: float) -> None:
        """Gives turns until all rounds are done or the time is up."""
        groups = list(dict.fromkeys(each.group for each in self._chosen))
        for number in range(self._options.rounds):
            for group in groups:
                names = [each.name for each in self._chosen if each.group == group and each.name in self._up]
                if time.monotonic() + sum(self._longest.get(name, 0.0) for name in names) > until - self._reserve():
                    return
                if self._options.order == "shuffled":
                    self._order.shuffle(names)
                elif number % 2:
                    names.reverse()
                for name in names:
                    self._turn(name, group, number, until)

    def profiles(self, until: float) -> None:
        """Gives each process a last turn under a profiler, where that is asked for and there is time."""
        for name in list(self._up) if self._options.profile else []:
            limit = min(until, time.monotonic() + self._options.turn_seconds)
            if limit - time.monotonic() > 2 * self._longest.get(name, 1.0):
                with self._kept(name, measured=True):
                    self._up[name].say(PROFILE)
                    self._result.profiles[name] = self._up[name].hear("profile", limit)
                    self._say({"profile": name, **self._result.profiles[name]})

    def _reserve(self) -> float:
        """Seconds to keep for the profiles."""
        return sum(max(2.0, 3 * self._longest.get(name, 1.0)) for name in self._up) if self._options.profile else 0.0

    def stop(self, seconds: float = 15.0) -> None:
        """Asks the processes to end, and sees that they do."""
        for name in list(self._up):
            with self._kept(name, measured=True):
                self._up[name].say(STOP)
        until = time.monotonic() + seconds
        for name, process in self._up.items():
            code = process.end(max(0.1, until - time.monotonic()))
            if code != 0:
                self._say({"note": name, "reason": f"ended after its last turn with {code}; {process.tail()}"})
        self._up.clear()

    def _turn(self, name: str, group: str, number: int, until: float) -> None:
        began = time.monotonic()
        with self._kept(name):
            self._up[name].say(TURN)
            row = self._up[name].hear("epoch", min(until + 5, time.monotonic() + self._options.turn_seconds))
            wall = time.monotonic() - began
            self._longest[name] = max(wall, self._longest.get(name, 0.0))
            row = {"round": number, "contender": name, "group": group, "wall_seconds": round(wall, 4), **row}
            self._result.rows.append(row)
            self._say(row)

    def _wait(self, names: Sequence[str], events: tuple[str, ...], until: float) -> None:
        """Hears those events from all processes, in whatever order they come from each."""
        expected = {name: list(events) for name in names if name in self._up}
        while expected:
            for name in list(expected):
                with self._kept(name):
                    self._hear_one(name, expected, until)
                if name not in self._up:
                    expected.pop(name, None)

    def _hear_one(self, name: str, expected: dict[str, list[str]], until: float) -> None:
        line = self._up[name].heard(0.02)
        if line is None:
            if time.monotonic() >= until:
                raise self._up[name].failure("was not ready in time")
            return
        event = expected[name].pop(0)
        if line.pop("event", None) != event:
            raise self._up[name].failure(f"said {str(line)[:100]} where {event} was expected")
        if event == "ready":
            self._is_ready(name, line)
        elif "ready" in expected[name]:
            self._up[name].say(WARM_UP)
        if not expected[name]:
            expected.pop(name)

    def _is_ready(self, name: str, facts: dict[str, Any]) -> None:
        self._result.facts[name] = facts
        self._say({"ready": name, **facts})

    @contextlib.contextmanager
    def _kept(self, name: str, measured: bool = False) -> Iterator[None]:
        """Leaves a process out that fails, and goes on; one that is measured already keeps its rows."""
        try:
            yield
        except FailureError as failure:
            reason = str(failure)
            process = self._up.pop(name, None)
            if process is not None:
                process.end()
            if not measured:
                self._result.left_out[name] = reason
            self._say({"note" if measured else "left_out": name, "reason": reason})


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Turns signals into an exception once, so that processes are ended in peace."""

    def handle(number: int, frame: Optional[Any]) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signal.Signals(number).name)

    before = {each: signal.signal(each, handle) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _check(contenders: Sequence[Contender]) -> None:
    names = [each.name for each in contenders]
    if not names:
        raise ValueError("expected at least one contender, received none")
    if len(set(names)) < len(names):
        raise ValueError(f"names: expected unique ones, received {names}")
    for group in {each.group for each in contenders}:
        references = [each.name for each in contenders if each.group == group and each.reference]
        if len(references) > 1:
            raise ValueError(f"group {group}: expected one reference at most, received {references}")
