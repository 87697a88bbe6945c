"""``make test``: makes the environments, then runs every check and every test, and adds up what passed."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple, Optional, Sequence
from xml.etree import ElementTree

import environment
import horovod
import progress
from stages import STACKS, Stage, environment_of, fast_stages, has_gpu, stack_stages

ROOT = environment.ROOT
RESULTS = environment.VENVS / "results"
# One more than there are cores: a test process waits a part of its time, for processes that it started and for disks.
MORE_LANES = 1
MOST_LANES = 8
LANES_ON_GPU = 2  # all of them use the same one
# Containers often forbid compiled files; hundreds of processes would then compile the package, a second each.
NOT_INHERITED = ("TF_USE_LEGACY_KERAS", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
GIB_A_LANE = 5.0


class Tally(NamedTuple):
    """Tests passed, failed and skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


class Result(NamedTuple):
    """How a stage ended."""

    stage: Stage
    tally: Tally
    seconds: float
    code: int


def read_tally(report: Path) -> Optional[Tally]:
    """What pytest's report says; None where it was not written, as when the process crashed."""
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return None
    total, failed, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites for name in names)
        for names in (("tests",), ("failures", "errors"), ("skipped",))
    )
    return Tally(max(0, total - failed - skipped), failed, skipped)


def run_stage(stage: Stage, commands: progress.Commands) -> Result:
    """Runs one stage and says how it ended, with the end of its output where it failed."""
    slug = stage.name.replace(" ", "-")
    report, log = RESULTS / f"{slug}.xml", environment.LOGS / f"{slug}.log"
    report.unlink(missing_ok=True)
    command = [str(environment.python_of(stage.environment)), *stage.command]
    if stage.counts:
        command += [f"--junitxml={report}", "-o", f"cache_dir={environment.VENVS / 'cache' / slug}"]
    inherited = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
    variables = {**inherited, "PYTHONUNBUFFERED": "1", "COLUMNS": "110", **stage.variables}
    started = time.monotonic()
    code = commands.run(stage.name, command, log, variables)
    seconds = time.monotonic() - started
    tally = read_tally(report) if stage.counts else Tally(passed=int(code == 0), failed=int(code != 0))
    tally = tally or Tally()
    if code and not tally.failed:
        tally = tally._replace(failed=1)  # it crashed, ran out of time or found no test: that is no success
    result = Result(stage, tally, seconds, code)
    if not commands.stopped:
        say_result(result, log)
    return result


def say_result(result: Result, log: Path) -> None:
    """Prints the line of a stage."""
    word = "ok    " if result.code == 0 else "FAILED"
    counts = f"{result.tally.passed} passed, {result.tally.failed} failed, {result.tally.skipped} skipped"
    progress.say(f"{word}  {result.stage.name:<26} {result.seconds:6.1f} s   {counts if result.stage.counts else ''}")
    if result.code:
        reason = " (ran past its time limit)" if result.code == 124 else ""
        progress.say(progress.tail(log, 120))
        progress.say(f"    exit status {result.code}{reason}; all of it: {log.relative_to(ROOT)}")


class Queue:
    """Stages that wait for a lane, in their order, except that one whose Horovod is not built yet lets others pass."""

    def __init__(self, stages: Sequence[Stage], builds: Optional[horovod.Builds] = None):
        self._waiting = list(stages)
        self._builds = builds
        self._lock = threading.Lock()

    def _is_ready(self, stage: Stage) -> bool:
        return not stage.with_horovod or self._builds is None or self._builds.is_done(stage.environment)

    def take(self) -> Optional[Stage]:
        """The next stage, and None when there is none left."""
        with self._lock:
            if not self._waiting:
                return None
            stage = next((stage for stage in self._waiting if self._is_ready(stage)), self._waiting[0])
            self._waiting.remove(stage)
            return stage

    def run(self, commands: progress.Commands) -> list[Result]:
        """One lane: takes stages until none is left, and runs each in its environment."""
        results = []
        stage = self.take()
        while stage is not None and not commands.stopped:
            environment.ensure(stage.environment, commands)
            if stage.with_horovod and self._builds is not None:
                self._builds.wait(stage.environment)
            results.append(run_stage(stage, commands))
            stage = self.take()
        return results


def run_lanes(pool: concurrent.futures.Executor, queue: Queue, lanes: int, commands: progress.Commands) -> list[Result]:
    """Runs the stages of a queue side by side, as far as the pool has threads that are free."""
    running = [pool.submit(queue.run, commands) for _ in range(lanes)]
    return [result for lane in running for result in lane.result()]


def horovod_results(builds: horovod.Builds) -> list[Result]:
    """A failed build counts as a failed stage; tools that are missing do not, and are said."""
    results = []
    for name in builds.names:
        stage = Stage(f"horovod {name}", name, (), {}, counts=False)
        failure = builds.wait(name)
        if failure is not None:
            progress.say(f"FAILED  {stage.name}\n{failure}")
            results.append(Result(stage, Tally(failed=1), 0.0, 1))
        elif builds.reasons.get(name):
            progress.say(f"The Horovod tests of {name} are skipped. {builds.reasons[name]}")
    return results


def lanes_that_fit() -> int:
    """How many stages can run side by side in this machine's memory."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    most = LANES_ON_GPU if has_gpu() else MOST_LANES
    return max(1, min(most, (os.cpu_count() or 1) + MORE_LANES, int(gib / GIB_A_LANE)))


def run_all(stacks: Sequence[str], fast: bool, lanes: int, commands: progress.Commands) -> list[Result]:
    """Runs the fast checks, and the stacks when those passed."""
    results: list[Result] = []
    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        # The large environments are installed while the fast checks run, whose own is made before.
        if fast:
            environment.ensure("pure", commands)
        names = dict.fromkeys(environment_of(stack) for stack in stacks)
        installs = [pool.submit(environment.ensure, name, commands) for name in names] if lanes > 1 else []
        # Compiled at low priority while other stages run; only the stages with several processes wait for it.
        builds = horovod.Builds(list(names), commands)
        if fast:
            results += run_lanes(pool, Queue(fast_stages()), lanes, commands)
        for install in installs:
            install.result()
        if any(result.code for result in results):
            commands.stop_all()
            progress.say("\nStopped: the fast checks failed, so the stacks were not run.")
            return results
        if stacks and not has_gpu():
            progress.say("tests/gpu is left out: this machine has no NVIDIA driver (nvidia-smi is not on PATH).")
        results += run_lanes(pool, Queue(stack_stages(stacks), builds), lanes, commands)
    return results + horovod_results(builds)


def summarise(results: Sequence[Result], seconds: float) -> int:
    """Prints what failed, and the sums in the last line; the exit code."""
    bad = [result for result in results if result.code]
    tally = Tally(*(sum(column) for column in zip(*(result.tally for result in results)))) if results else Tally()
    progress.say(f"\n{len(results)} stages in {seconds:.0f} s" + (", all good." if results and not bad else "."))
    for result in bad:
        progress.say(f"  failed: {result.stage.name}, see .venv/logs/{result.stage.name.replace(' ', '-')}.log")
    progress.say(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if bad or not results else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stacks", default=",".join(STACKS), help="comma-separated, of: " + ", ".join(STACKS))
    parser.add_argument("--only-fast", action="store_true", help="lint, types and tests/pure only")
    parser.add_argument("--no-fast", action="store_true", help="the stacks only")
    parser.add_argument("--lanes", type=int, default=lanes_that_fit(), help="stages side by side")
    parsed = parser.parse_args(arguments)
    parsed.stacks = [] if parsed.only_fast else [name for name in parsed.stacks.replace(" ", ",").split(",") if name]
    unknown = [name for name in parsed.stacks if name not in STACKS]
    if unknown:
        parser.error(f"unknown stack {', '.join(unknown)}; expected some of {', '.join(STACKS)}")
    return parsed


def main() -> int:
    """Runs what the command line asks for."""
    arguments = parse(sys.argv[1:])
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    commands = progress.Commands()
    started = time.monotonic()
    os.chdir(ROOT)
    # Ctrl-C reaches this thread only; the commands lead process groups of their own and are ended here.
    watcher: list[list[Result]] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            watcher.append(run_all(arguments.stacks, not arguments.no_fast, arguments.lanes, commands))
        except BaseException as error:
            failure.append(error)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(timeout=0.5)
    except KeyboardInterrupt:
        commands.stop_all()
        progress.say("\nInterrupted.")
        return 130
    if failure:
        if not isinstance(failure[0], environment.SetupError):
            raise failure[0]
        progress.say(f"\n{failure[0]}\n0 passed, 1 failed, 0 skipped")
        return 2
    return summarise(watcher[0], time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
