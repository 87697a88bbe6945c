"""Sees the workers of one start through: output, signals, failures, standstills, and the end of all of them."""

from __future__ import annotations

import dataclasses
import select
import signal
import time
from typing import Optional, Sequence

from tfvolta.errors import LostError, StallError
from tfvolta.launch.cause import cause
from tfvolta.launch.ending import Ended, signal_name
from tfvolta.launch.escalation import Escalation
from tfvolta.launch.guardian import Guardian
from tfvolta.launch.outlet import Outlet
from tfvolta.launch.process import Worker
from tfvolta.launch.signals import ASKING, Signals
from tfvolta.launch.standing import Standing

# Time for stacks to be written before a worker that stands still is ended.
_STACKS_SECONDS = 3.0
# Servers whose chief has ended may end by themselves.
_SERVERS_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_LEFTOVERS_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Result:
    """How one start of all workers ended.

    Attributes:
        failed: The worker that failed first; None where none did.
        interrupted: The signal by which the launcher was told to end, or None.
        ended: How each worker ended, in the order of ranks.
    """

    failed: Optional[Ended]
    interrupted: Optional[int]
    ended: tuple[Ended, ...]

    @property
    def code(self) -> int:
        """Exit code for the launcher: that of the worker that failed first, 0 where none did.

        Told to end, a launcher gives the first code that a worker chose, as one that saves and asks to be started
        again, and otherwise what a shell gives for the signal.
        """
        if self.failed is not None:
            return self.failed.code
        if self.interrupted is None:
            return 0
        chosen = [each.returncode for each in self.ended if each.returncode > 0]
        return chosen[0] if chosen and self.interrupted != signal.SIGPIPE else 128 + self.interrupted


class Supervisor:
    """The loop of the launcher, in one thread.

    Args:
        workers: Started, in the order of ranks.
        outlets: Standard output and standard error.
        signals: Entered.
        guardian: Knows the workers' groups.
        standing: Reads signs of life.
        grace_seconds: Time that workers get to end by themselves, once before SIGTERM and once before SIGKILL.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        outlets: tuple[Outlet, Outlet],
        signals: Signals,
        guardian: Guardian,
        standing: Standing,
        grace_seconds: float,
    ):
        self._workers = list(workers)
        self._out, self._error = outlets
        self._signals = signals
        self._guardian = guardian
        self._standing = standing
        self._grace_seconds = grace_seconds
        self._escalation = Escalation(grace_seconds)
        self._failed: Optional[Ended] = None
        self._lost: list[Worker] = []
        self._interrupted: Optional[int] = None
        self._looked = time.monotonic()
        self._told = False

    def run(self) -> Result:
        """Returns when nothing is left of any worker and all output is written."""
        try:
            while any(not worker.is_gone for worker in self._workers):
                self._wait()
                for number in self._signals.come():
                    self._take(number)
                for worker in self._workers:
                    worker.pump()
                self._see_ends()
                self._escalate()
                self._look_for_standstill()
            for outlet in (self._out, self._error):
                outlet.drain(self._grace_seconds)
        finally:
            for worker in self._workers:
                worker.signal(signal.SIGKILL)
        return Result(self._failed, self._interrupted, tuple(ended_of(worker) for worker in self._workers))

    def _wait(self) -> None:
        """Sleeps until a worker writes or ends, a signal comes, a reader has room, or something is due."""
        poll = select.poll()
        poll.register(self._signals.handle, select.POLLIN)
        for worker in self._workers:
            for handle in worker.handles:
                poll.register(handle, select.POLLIN)
        for outlet in (self._out, self._error):
            if outlet.is_waiting:
                poll.register(outlet.handle, select.POLLOUT)
        due = [_LOOK_SECONDS]
        due += [] if self._escalation.wait_seconds is None else [self._escalation.wait_seconds]
        due += [_LEFTOVERS_SECONDS for worker in self._workers if worker.has_leftovers]
        ready = {handle for handle, _ in poll.poll(min(due) * 1000.0)}
        for outlet in (self._out, self._error):
            if outlet.is_waiting and outlet.handle in ready:
                outlet.write()
        if self._out.is_broken and self._interrupted is None:
            if self._out.fault:
                self._error.say(f"standard output cannot be written ({self._out.fault}), so the workers are ended")
            self._interrupted = signal.SIGPIPE
            self._escalation.begin(0.0)

    def _take(self, number: int) -> None:
        """A signal to the launcher: passed on. The second one brings the next stage at once."""
        if number == ASKING:
            self._ask_for_stacks()
            return
        self._error.say(f"{signal_name(number)}: passed on to the workers")
        self._signal_all(number)
        if self._interrupted is None and number == signal.SIGTERM:
            # Workers save now, and a second SIGTERM would disturb them.
            self._escalation.begin(2 * self._grace_seconds, signal.SIGKILL)
        elif self._interrupted is None:
            self._escalation.begin(self._grace_seconds)
        else:
            self._escalation.sooner(0.0)
        self._interrupted = number

    def _see_ends(self) -> None:
        # All are looked at before one is judged: what has ended well by now may be the cause of another's failure.
        ended = [worker for worker in self._workers if _has_ended(worker, self._guardian, self._standing)]
        for worker in ended:
            # Servers are told to end when the chief has ended; how they do is no failure then.
            served = self._escalation.is_on and not worker.task.trains
            if worker.returncode and self._failed is None and self._interrupted is None and not served:
                self._see_failure(worker)
        if all(worker.returncode is not None for worker in self._workers if worker.task.trains):
            seconds = min(_SERVERS_SECONDS, self._grace_seconds)
            if not self._escalation.is_on:
                self._escalation.begin(seconds)
            self._escalation.sooner(seconds)

    def _see_failure(self, worker: Worker) -> None:
        """A server that has lost its chief ends sooner than a chief that fails, which is given time to say why."""
        chief_lives = any(each.returncode is None for each in self._workers if each.task.trains)
        if not worker.task.trains and worker.returncode == LostError.exit_code and chief_lives:
            self._lost.append(worker)
            self._escalation.begin(self._grace_seconds)
        else:
            self._fail(worker)

    def _fail(self, worker: Worker) -> None:
        if self._lost and worker.returncode in (-signal.SIGTERM, -signal.SIGKILL):
            worker = self._lost[0]  # the chief did not end by itself
        stalled = worker.returncode == StallError.exit_code and not self._lost
        if stalled:
            self._failed = self._stuck(worker.task.name)
        else:
            ended = ended_of(worker)
            self._failed = dataclasses.replace(
                ended, because=cause(worker, self._workers, self._standing) or ended.because
            )
        text = str(self._failed)
        if not self._escalation.is_on and any(other.returncode is None for other in self._workers):
            text += f"; the others get {self._grace_seconds:g} s to end"
            self._escalation.begin(self._grace_seconds)
        self._error.say(text)

    def _names(self, living: bool) -> list[str]:
        """Names of the workers that train, or of those of them that have not ended."""
        training = [worker for worker in self._workers if worker.task.trains]
        return [worker.task.name for worker in training if not living or worker.returncode is None]

    def _escalate(self) -> None:
        number = self._escalation.due()
        if number is None:
            return
        left = [worker.task.name for worker in self._workers if not worker.is_gone]
        if left and (self._failed is not None or self._interrupted is not None):
            self._error.say(f"{signal_name(number)} to {', '.join(left)}")
        self._signal_all(number)

    def _signal_all(self, number: int) -> None:
        for worker in self._workers:
            worker.signal(number)

    def _look_for_standstill(self) -> None:
        if time.monotonic() - self._looked < _LOOK_SECONDS or self._escalation.is_on:
            return
        self._looked = time.monotonic()
        names = self._names(living=True)
        beats = self._standing.stalled(names)
        if beats is None:
            self._told = False
        elif not self._told:
            self._told = True
            found = self._standing.who_is_missing(names)
            self._error.say(f"no worker makes progress: {found.sentence}")
            self._ask_for_stacks()
            if all(beat.ends for beat in beats):
                self._failed = self._stuck(names[0])
                self._escalation.begin(_STACKS_SECONDS)

    def _stuck(self, otherwise: str) -> Ended:
        """The worker for which the others wait; another one where that cannot be told."""
        found = self._standing.who_is_missing(self._names(living=False))
        name = (*found.missing, otherwise)[0]
        return Ended(name, StallError.exit_code, self._standing.step(name), standstill=found.sentence)

    def _ask_for_stacks(self) -> None:
        """Only workers that have said so answer; the signal would end the others."""
        answering = {beat.worker: beat.pid for beat in self._standing.beats(self._names(living=True)) if beat.answers}
        for worker in self._workers:
            if worker.task.name in answering:
                worker.signal_one(answering[worker.task.name], ASKING)


def _has_ended(worker: Worker, guardian: Guardian, standing: Standing) -> bool:
    """Whether a worker has ended since the last look; its last step is noted then."""
    was_gone, has_ended = worker.is_gone, worker.look()
    if worker.is_gone and not was_gone:
        guardian.remove(worker.group)
    if has_ended:
        worker.step = standing.step(worker.task.name)
    return has_ended


def ended_of(worker: Worker) -> Ended:
    """How a worker that is gone ended."""
    lost = worker.returncode == LostError.exit_code and not worker.task.trains
    because = "it had lost another process of the cluster" if lost else ""
    return Ended(worker.task.name, worker.returncode or 0, worker.step, worker.last_lines, because=because)
