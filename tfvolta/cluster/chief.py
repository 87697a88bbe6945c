"""The chief's side of the meeting before training: waits for all, times the way to each, compares, tells all."""

from __future__ import annotations

import time
from typing import Any, Iterator, NamedTuple

from tfvolta.cluster.comparison import compare, title
from tfvolta.cluster.meeting_place import MeetingPlace
from tfvolta.cluster.verdict import Verdict
from tfvolta.cluster.wire import Wire, WireError
from tfvolta.cluster.worker_report import summary
from tfvolta.errors import Problem

# Raised when the messages change their meaning.
PROTOCOL = 1
_ROUNDS = 5
_SLOW_SECONDS = 10.0
_TICK_SECONDS = 1.0


class Guest(NamedTuple):
    """A worker that has come."""

    wire: Wire
    report: dict[str, Any]


class Chief:
    """One meeting, held by the chief.

    Attributes:
        guests: Who has come, by rank.
        ended: Who had come and went again, by rank.
        strangers: Sentences on processes that came and do not belong here.
        doubles: Problems with ranks that two processes claim.
        served: Ranks whose servers run already, of parameter-server clusters only.
    """

    def __init__(self, place: MeetingPlace, report: dict[str, Any], seconds: float):
        self._place = place
        self._report = report
        self._seconds = seconds
        self._began = time.monotonic()
        self.guests: dict[int, Guest] = {}
        self.ended: set[int] = set()
        self.strangers: list[str] = []
        self.doubles: list[Problem] = []
        self.served: set[int] = set()

    def hold(self) -> Verdict:
        """Waits for all workers, or until time is up, and tells those that came what the meeting came to.

        Raises:
            ClusterError: The chief cannot listen.
        """
        with self._place.listen() as listening:
            while self._missing() and self._left() > 0 and not self.doubles:
                listening.settimeout(min(_TICK_SECONDS, max(self._left(), 0.01)))
                try:
                    connection, _ = listening.accept()
                except OSError:
                    self._look_around()
                    continue
                self._receive(Wire(connection))
            self._look_around()
            verdict = self._verdict()
            for guest in self.guests.values():
                _tell(guest.wire, verdict)
        return verdict

    def _left(self) -> float:
        return self._seconds - (time.monotonic() - self._began)

    def _missing(self) -> list[int]:
        present = {*self.guests, *self.served, self._report["rank"]}
        return [rank for rank in range(self._place.cluster.world_size) if rank not in present]

    def _look_around(self) -> None:
        """Forgets guests that went away, and notices servers that run since before this chief started."""
        for rank in [rank for rank, guest in self.guests.items() if not guest.wire.is_open]:
            self.guests.pop(rank).wire.close()
            self.ended.add(rank)
        if self._place.cluster.has_parameter_servers:
            self.served |= {rank for rank in self._missing() if self._place.is_served(rank)}

    def _receive(self, wire: Wire) -> None:
        try:
            welcome = self._welcome(wire)
        except WireError:
            welcome = False
        if not welcome:
            wire.close()

    def _welcome(self, wire: Wire) -> bool:
        """Takes one connection; whether it is that of a worker of this job."""
        hello = wire.receive(_SLOW_SECONDS)
        if hello.get("meeting") != PROTOCOL:
            return False
        if hello.get("token") != self._place.token:
            self.strangers.append(f"a process at {wire.peer} came with another list of workers: {hello.get('cluster')}")
            wire.send({"refused": "cluster", "cluster": self._place.identity})
            return False
        given = hello.get("report")
        report: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        rank = report.get("rank")
        if not isinstance(rank, int) or not 0 < rank < self._place.cluster.world_size:
            return False
        report["clock_offset_seconds"], report["round_trip_seconds"] = clock_offset(wire)
        former = self.guests.get(rank)
        if former is not None and former.wire.is_open:
            self.doubles.append(_double(former.report, report))
            _tell(wire, self._verdict())
            return False
        wire.send({"stay_seconds": max(self._left(), 0.0)})
        self.guests[rank] = Guest(wire, report)
        self.ended.discard(rank)
        return True

    def _verdict(self) -> Verdict:
        reports = [self._report, *(self.guests[rank].report for rank in sorted(self.guests))]
        waited = round(time.monotonic() - self._began, 3)
        workers = tuple(summary(report) for report in reports)
        if self.doubles:
            return Verdict("Two processes have one place.", tuple(self.doubles), (), workers, waited)
        missing = self._missing()
        if missing:
            names = ", ".join(self._name(rank) for rank in missing)
            verb = "has" if len(missing) == 1 else "have"
            headline = f"{names} {verb} not come within {self._seconds:g} s."
            return Verdict(headline, tuple(self._absences(missing)), (), workers, waited)
        problems, warnings = compare(reports)
        headline = f"The workers cannot train together: {len(problems)} difference{'s' * (len(problems) > 1)}."
        return Verdict(headline if problems else "", tuple(problems), tuple(warnings), workers, waited)

    def _name(self, rank: int) -> str:
        members = self._place.cluster.members()
        if not members:
            return f"worker {rank}"
        job, index, address = members[rank]
        return f"{job} {index} ({address})"

    def _absences(self, missing: list[int]) -> Iterator[Problem]:
        why = "it was not started, it ended before (its output says why), or it cannot reach the chief: " + (
            self._place.chief
        )
        if self.strangers:
            why += "; " + "; ".join(dict.fromkeys(self.strangers))
        for rank in missing:
            yield Problem(
                where=self._name(rank),
                expected=f"to meet the others within {self._seconds:g} s",
                received="came, and ended before the others were there" if rank in self.ended else "nothing from it",
                why=why,
                fix="look at its output and start all workers together; a larger cluster.preflight_timeout_seconds "
                "waits longer",
            )


def clock_offset(wire: Wire) -> tuple[float, float]:
    """How far another clock is ahead of this one, from the shortest of several round trips; and that round trip.

    Raises:
        WireError: The other side does not answer.
    """
    best = (0.0, float("inf"))
    for number in range(_ROUNDS):
        sent, started = time.time(), time.perf_counter()
        wire.send({"ping": number})
        answer = wire.receive(_SLOW_SECONDS)
        took = time.perf_counter() - started
        if answer.get("pong") != number or not isinstance(answer.get("time"), (int, float)):
            raise WireError("no answer to a ping")
        if took < best[1]:
            best = (float(answer["time"]) - (sent + took / 2), took)
    return round(best[0], 6), round(best[1], 6)


def _tell(wire: Wire, verdict: Verdict) -> None:
    try:
        wire.send({"verdict": verdict.to_json()})
    except WireError:
        pass  # it went away meanwhile; training will notice
    finally:
        wire.close()


def _double(one: dict[str, Any], other: dict[str, Any]) -> Problem:
    return Problem(
        where=title(one),
        expected="one process",
        received=f"process {one.get('pid')} on {one.get('host')} and process {other.get('pid')} on {other.get('host')}",
        why="both say that they are this worker, so another one is missing",
        fix="give each process an index of its own in TF_CONFIG, and end processes of earlier runs",
    )
