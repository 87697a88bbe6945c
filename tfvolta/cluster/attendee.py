"""The other workers' side of the meeting before training: find the chief, report, and hear what it came to."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Optional

from tfvolta.cluster.chief import PROTOCOL
from tfvolta.cluster.meeting_place import MeetingPlace
from tfvolta.cluster.verdict import Verdict
from tfvolta.cluster.wire import Wire, WireError
from tfvolta.errors import Problem

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0
_CONNECT_SECONDS = 5.0
# How much longer than the chief a worker waits for the verdict: the chief may be welcoming others.
_GRACE_SECONDS = 30.0


class Attendee:
    """One meeting, seen by a worker that is not the chief.

    Attributes:
        heard: What stood in the way last, for the message.
    """

    def __init__(self, place: MeetingPlace, report: dict[str, Any], seconds: float, started: bool = False):
        """Prepares.

        Args:
            place: Where the chief is.
            report: What this worker tells.
            seconds: How long to wait for the chief.
            started: Whether a chief whose TensorFlow serves may still come, because that of this process does too.
        """
        self._place = place
        self._started = started
        self._report = report
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self.heard = "it does not listen"

    def attend(self) -> Verdict:
        """Comes to the meeting; tries again while the chief is not there yet."""
        pause = _FIRST_PAUSE_SECONDS
        while self._left() > 0:
            verdict = self._try()
            if verdict is not None:
                return verdict
            time.sleep(max(0.0, min(pause, self._left())))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return self._chief_missing()

    def _left(self) -> float:
        return self._until - time.monotonic()

    def _try(self) -> Optional[Verdict]:
        """One attempt at every door; None where another one may succeed."""
        refused = 0
        try:
            doors = self._place.doors()
        except OSError as error:
            self.heard = str(error)
            return None
        for door in doors:
            try:
                wire = Wire(socket.create_connection(door, timeout=max(0.01, min(_CONNECT_SECONDS, self._left()))))
            except OSError as error:
                self.heard = str(error)
                refused += isinstance(error, ConnectionRefusedError)
                continue
            try:
                verdict = self._talk(wire)
            finally:
                wire.close()
            if verdict is not None:
                return verdict
        return self._too_late() if refused == len(doors) else None

    def _talk(self, wire: Wire) -> Optional[Verdict]:
        welcome = False
        until = self._until
        hello = {"meeting": PROTOCOL, "token": self._place.token, "cluster": self._place.identity}
        try:
            wire.send({**hello, "report": self._report})
            while True:
                message = wire.receive(until - time.monotonic())
                if "ping" in message:
                    wire.send({"pong": message["ping"], "time": time.time()})
                elif "stay_seconds" in message:
                    welcome = True
                    until = time.monotonic() + float(message["stay_seconds"]) + _GRACE_SECONDS
                elif "refused" in message:
                    self.heard = f"the chief of another job answers: {json.dumps(message.get('cluster'))}"
                    same = self._place.has_chief_of(message.get("cluster"))
                    return self._other_cluster(message.get("cluster")) if same else None
                elif "verdict" in message:
                    return Verdict.from_json(message["verdict"])
        except (WireError, ValueError, TypeError) as error:
            self.heard = f"what answers is not the chief of this job ({error})"
            return self._chief_ended(str(error)) if welcome else None

    def _too_late(self) -> Optional[Verdict]:
        """What it means that the chief's TensorFlow already serves while nobody meets: this worker was restarted."""
        if self._started or not self._place.is_served(0):
            return None
        if self._place.cluster.has_parameter_servers:
            return Verdict(warnings=("The chief trains already; this process joins it without having met the others.",))
        problem = Problem(
            where=f"{self._place.cluster.name} ({self._place.cluster.address})",
            expected="a chief that waits for its workers",
            received=f"one that trains already: {self._place.chief}",
            why="the workers of this strategy start and end together; one that is started again alone cannot join",
            fix="end all workers and start them together; with a checkpoint section they go on from the last one",
        )
        return Verdict("This worker came too late.", (problem,))

    def _chief_missing(self) -> Verdict:
        problem = Problem(
            where=self._place.chief,
            expected=f"the chief to listen within {self._seconds:g} s",
            received=self.heard,
            why="it was not started, it ended before (its output says why), or a firewall stands between",
            fix="look at its output and start all workers together; a larger cluster.preflight_timeout_seconds waits "
            "longer",
        )
        return Verdict(f"{self._place.chief_name} has not come within {self._seconds:g} s.", (problem,))

    def _chief_ended(self, error: str) -> Verdict:
        problem = Problem(
            where=self._place.chief,
            expected="to hear from the chief what the meeting came to",
            received=error,
            why="the chief ended while the workers met",
            fix="look at the chief's output",
        )
        return Verdict("The chief ended during the check before training.", (problem,))

    def _other_cluster(self, cluster: Any) -> Verdict:
        problem = Problem(
            where=f"{self._place.cluster.name} ({self._place.cluster.address})",
            expected=f"the list of workers that the chief has: {json.dumps(cluster)}",
            received=json.dumps(self._place.identity),
            why="workers with different lists belong to different jobs, or one list is wrong",
            fix="give every worker the same cluster, in the same order, and ports of its own to each job",
        )
        return Verdict("This worker and the chief have different lists of workers.", (problem,))
