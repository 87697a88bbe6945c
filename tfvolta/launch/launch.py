"""Starts the workers of a run, again where they may be, and says how it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence

from tfvolta.errors import LaunchError, Problem
from tfvolta.evidence.launch_record import write_launch
from tfvolta.evidence.store import new_run_id
from tfvolta.facts.schema import Facts
from tfvolta.launch.binding import Binding, bind
from tfvolta.launch.ending import Ended
from tfvolta.launch.environment import Start, worker_environment
from tfvolta.launch.gpus import assign
from tfvolta.launch.guardian import Guardian
from tfvolta.launch.mark import Mark
from tfvolta.launch.outlet import Outlet
from tfvolta.launch.ports import Ports
from tfvolta.launch.process import Worker, start_process
from tfvolta.launch.rendezvous import Rendezvous
from tfvolta.launch.request import Request
from tfvolta.launch.signals import Signals
from tfvolta.launch.standing import Standing
from tfvolta.launch.supervisor import Result, Supervisor

# A config that is refused would be refused again.
_REFUSED = 2


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    Attributes:
        code: Exit code.
        run_ids: Of each start.
        failed: The worker that failed first in the last start, or None.
        ended: How each worker of the last start ended.
    """

    code: int
    run_ids: tuple[str, ...]
    failed: Optional[Ended]
    ended: tuple[Ended, ...]


class Launcher:
    """One launch, with as many starts as it takes and may have.

    Args:
        request: Checked by ``tfvolta.launch.request.problems``.
        facts: This machine.
        environ: The environment that workers inherit.
        handles: Descriptors of standard output and standard error.
    """

    def __init__(self, request: Request, facts: Facts, environ: Mapping[str, str], handles: tuple[int, int] = (1, 2)):
        self._request = request
        self._environ = dict(environ)
        self._outlets = (Outlet(handles[0]), Outlet(handles[1]))
        self._tasks = request.tasks
        self._gpus = assign(self._tasks, request.gpus, request.share_gpus)
        allowed = frozenset(os.sched_getaffinity(0))
        self._bindings: Mapping[str, Binding] = {}
        if request.bind:
            self._bindings = bind(self._tasks, self._gpus, facts, allowed)

    def run(self) -> Outcome:
        """Starts all workers until they end well, may not be started again, or the launcher is told to end.

        Raises:
            LaunchError: A worker cannot be started.
        """
        run_id = new_run_id()
        run_ids: list[str] = []
        folder = tempfile.mkdtemp(prefix="tfvolta-launch-")
        guardian = Guardian(folder)
        try:
            with Signals() as signals:
                for restart in range(self._request.max_restarts + 1):
                    run_ids.append(f"{run_id}-restart-{restart}" if restart else run_id)
                    start = Start(run_ids[-1], os.path.join(folder, str(restart)), restart)
                    result = self._start_once(start, signals, guardian)
                    again, then = self._then(restart, result)
                    self._report(result, then)
                    self._record(start, result)
                    if not again:
                        break
        finally:
            guardian.close()
            shutil.rmtree(folder, ignore_errors=True)
        return Outcome(result.code, tuple(run_ids), result.failed, result.ended)

    def _start_once(self, start: Start, signals: Signals, guardian: Guardian) -> Result:
        os.makedirs(start.heartbeats, exist_ok=True)
        workers: list[Worker] = []
        with self._meeting_place(start, signals) as met:
            self._introduce(met)
            try:
                for task in self._tasks:
                    workers.append(self._start_worker(task.rank, met, guardian.mark))
                    guardian.add(workers[-1].group)
                standing = Standing(start.heartbeats)
                grace = self._request.grace_seconds
                return Supervisor(workers, self._outlets, signals, guardian, standing, grace).run()
            finally:
                for worker in workers:
                    worker.end_now()
                guardian.mark.end()  # what took a session of its own must not run beside the next start

    @contextlib.contextmanager
    def _meeting_place(self, start: Start, signals: Signals) -> Iterator[Start]:
        """Where the workers of one start find each other: ports of their own, or Horovod's rendezvous server."""
        if self._request.kind == "horovod":
            server = Rendezvous(len(self._tasks), self._environ, lambda: signals.tells_to_end)
            with contextlib.closing(server):
                yield dataclasses.replace(start, rendezvous_port=server.port)
        else:
            with Ports(len(self._tasks)) as ports:
                yield dataclasses.replace(start, addresses=ports.addresses)

    def _start_worker(self, rank: int, start: Start, mark: Mark) -> Worker:
        task = self._tasks[rank]
        binding = self._bindings.get(task.name, Binding())
        environ = worker_environment(self._environ, task, self._tasks, start, self._shown_gpus(rank), binding)
        try:
            popen = start_process(self._request.command, mark.on(environ), binding.cpus)
        except OSError as error:
            problem = Problem(
                task.name, "a process that starts", str(error), fix="see what the system allows: ulimit -a"
            )
            raise LaunchError("A worker cannot be started.", [problem]) from error
        log = self._request.log_directory
        return Worker(task, popen, self._outlets, None if log is None else log / f"{task.stem}.log")

    def _shown_gpus(self, rank: int) -> Optional[Sequence[int]]:
        """What CUDA shows a worker. Horovod's scripts pick theirs by local rank, out of all that there are."""
        if not self._request.gpus:
            return None
        if self._request.kind == "horovod":
            return tuple(dict.fromkeys(gpu for task in self._tasks for gpu in self._gpus[task.name]))
        return self._gpus[self._tasks[rank].name]

    def _introduce(self, start: Start) -> None:
        """Says what is started, and where."""
        if self._request.quiet:
            return
        say = self._outlets[1].say
        for task in self._tasks:
            where = [start.addresses[task.rank]] if start.addresses else []
            gpus = self._gpus[task.name]
            where += [f"GPU {', '.join(map(str, gpus))}"] if gpus else []
            where += [str(self._bindings.get(task.name, Binding()))] if task.computes else []
            say(f"{task.name}: {', '.join(where) or 'no GPU'}")
        if self._request.as_it_is and not start.restart:
            say(self._request.as_it_is)

    def _then(self, restart: int, result: Result) -> tuple[bool, str]:
        """Whether all workers are started again, and what is said of that."""
        most = self._request.max_restarts
        if result.interrupted or result.code == 0 or not most:
            return False, ""
        if result.code == _REFUSED:
            return False, "not started again: exit code 2 says that it would end alike"
        if restart == most:
            return False, f"not started again: --max-restarts {most} is used up"
        return True, f"starting all workers again ({restart + 1} of {most})"

    def _report(self, result: Result, then: str) -> None:
        """What went wrong and what is done next: the cause last, where it is seen below all that it has led to."""
        say = self._outlets[1].say
        if result.failed is not None:
            lines = next((each.lines for each in result.ended if each.name == result.failed.name), ())
            lines = () if result.failed.standstill else lines  # stacks, which were written to files too
            if lines:
                say(f"{result.failed.name}'s last lines of error:")
                self._outlets[1].put([f"    {line}".encode() for line in lines])
            others = [str(each) for each in result.ended if each.returncode and each.name != result.failed.name]
            if others:
                say(f"after that: {'; '.join(others)}")
            say(f"cause: {result.failed}")
        if then:
            say(then)
        self._flush()

    def _record(self, start: Start, result: Result) -> None:
        """Puts how each worker ended beside the evidence that it wrote itself."""
        if self._request.run_directory is None:
            return
        content = {
            "kind": self._request.kind,
            "command": list(self._request.command),
            "restart": start.restart,
            "exit_code": result.code,
            "failed": None if result.failed is None else str(result.failed),
            "ended": {each.name: str(each) for each in result.ended},
        }
        write_launch(self._request.run_directory / start.run_id, content)

    def _flush(self) -> None:
        for outlet in self._outlets:
            outlet.drain(self._request.grace_seconds)


def log_folder(path: Optional[str]) -> Optional[Path]:
    """The folder for a file per worker, made now.

    Raises:
        LaunchError: It cannot be made.
    """
    if path is None:
        return None
    folder = Path(path).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        problem = Problem(f"--log-directory {path}", "a folder that can be made", str(error), fix="give another folder")
        raise LaunchError("The folder for the workers' output cannot be made.", [problem]) from error
    return folder
