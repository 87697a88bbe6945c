"""Runs one speed trial in a process of its own, under limits of time and memory; nothing of it is left afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

from tfvolta.launch.guardian import Guardian
from tfvolta.launch.process import start_process
from tfvolta.memory.exhaustion import is_exhaustion, size_text
from tfvolta.tune.result import Ending
from tfvolta.tune.speed_request import SpeedRequest, Tail
from tfvolta.tune.speed_trial import Block, SpeedTrial
from tfvolta.tune.trial_process import group_bytes
from tfvolta.tune.write_fault import cannot_write

_LOOK_SECONDS = 0.05
_MEMORY_LOOK_SECONDS = 0.25  # reading every process costs time that the trial shall have
_LAST_BYTES = 20_000
_WORKER = "tfvolta.tune.speed_worker"
_AFTER_BLOCKS_SECONDS = 30.0  # for what the process says of its model once everything is timed

Decide = Callable[[Sequence[Block]], bool]


class InterruptedTrialError(Exception):
    """The search was told to end while a trial ran; the trial does not count."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a trial may take.

    Attributes:
        trial_seconds: The whole process.
        compile_seconds: Its first training step.
        host_bytes: Memory of the host for all its processes; None for no limit.
    """

    trial_seconds: float = 600.0
    compile_seconds: float = 300.0
    host_bytes: Optional[int] = None


@dataclasses.dataclass
class _Seen:
    """What a process has said so far."""

    blocks: list[Block] = dataclasses.field(default_factory=list)
    losses: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    startup_seconds: Optional[float] = None
    first_step_seconds: Optional[float] = None
    first_call_at: Optional[float] = None
    fit_begun: bool = False
    done_at: Optional[float] = None
    peaks: dict[str, int] = dataclasses.field(default_factory=dict)
    traits: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    end: Optional[tuple[Ending, str]] = None

    def take_all(self, tail: Tail) -> bool:
        """Takes the lines that have come; whether a block is among them."""
        before = len(self.blocks)
        for line in tail.new():
            self._take(line)
        return len(self.blocks) > before

    def _take(self, line: dict[str, Any]) -> None:
        event = line.pop("event", "")
        if line.get("loss"):
            count, loss = line["loss"]
            self.losses.append((int(count), float(loss)))
        if event == "block":
            self.blocks.append(Block(line["seconds"], line["batches"], line["examples"]))
        elif event == "timed":
            self.notes.append(f"the script's fit of {line['epochs']} epochs goes on for as long as timing takes")
        elif event == "left out":
            self.notes.append(f"trials leave out {', '.join(line['callbacks'])}, which end a fit or write files")
        elif event == "fit":
            self.fit_begun = True
        elif event == "first call":
            self.startup_seconds, self.first_call_at = line["startup_seconds"], time.monotonic()
        elif event == "first step":
            self.first_step_seconds = line["seconds"]
        elif event == "peaks":
            self.peaks, self.done_at = line["bytes"], time.monotonic()
        elif event == "model":
            self.traits = line
        elif event == "end":
            self.end = (line["ending"], line["reason"])

    def stage(self, limits: Limits, since: float) -> Optional[tuple[Ending, str]]:
        """How a process ends that has used up its time; None while it has some left."""
        now = time.monotonic()
        compiling = self.first_call_at is not None and self.first_step_seconds is None
        if compiling and now - (self.first_call_at or now) > limits.compile_seconds:
            return "compile timeout", f"the first training step was not done after {limits.compile_seconds:g} s"
        if self.done_at is not None and now - self.done_at > _AFTER_BLOCKS_SECONDS:
            return "measured", ""
        if now - since <= limits.trial_seconds:
            return None
        if self.blocks:
            return "measured", f"timed {len(self.blocks)} blocks in its {limits.trial_seconds:g} s"
        if compiling:
            return "compile timeout", f"the first training step was not done when {limits.trial_seconds:g} s were over"
        where = "training stood still" if self.fit_begun else "model.fit had not begun"
        return "hang", f"{where} when {limits.trial_seconds:g} s were over"


class SpeedProcess:
    """Runs speed trials, one after another.

    Attributes:
        limits: What each may take.
        seconds: Wall time of all trials so far.
    """

    def __init__(self, limits: Limits, told_to_end: Callable[[], bool], tick: Callable[[], None] = lambda: None):
        """Prepares.

        Args:
            limits: What a trial may take.
            told_to_end: Whether somebody wants the search to end; looked at all the time.
            tick: Called all the time, for who shows progress.
        """
        self.limits = limits
        self.seconds = 0.0
        self._told_to_end, self._tick = told_to_end, tick

    def run(self, request: SpeedRequest, is_slow: Decide = lambda blocks: False) -> SpeedTrial:
        """Runs one trial; it always ends, whatever the script does.

        Args:
            request: What to time; its ``lines`` and ``started`` are set here.
            is_slow: Asked after each block whether the trial shall stop there.

        Raises:
            InterruptedTrialError: The search was told to end.
            TuneError: The trial's own files cannot be written.
        """
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="tfvolta-trial-") as folder:
                guardian = Guardian(folder)
                try:
                    return self._run(request, Path(folder), guardian, is_slow)
                finally:
                    guardian.close()
        except OSError as error:
            raise cannot_write(Path(tempfile.gettempdir()), error) from error
        finally:
            self.seconds += time.monotonic() - started

    def _run(self, request: SpeedRequest, folder: Path, guardian: Guardian, is_slow: Decide) -> SpeedTrial:
        path, output, lines = folder / "request.json", folder / "output.txt", folder / "lines.jsonl"
        since = time.monotonic()
        dataclasses.replace(request, lines=str(lines), started=time.time()).write(path)
        with output.open("wb") as file:
            command = [sys.executable, "-m", _WORKER, str(path)]
            child = start_process(command, guardian.mark.on(os.environ), output=file.fileno())
        guardian.add(child.pid)
        seen, tail = _Seen(), Tail(lines)
        try:
            ended, peak = self._watch(child, seen, tail, (since, is_slow))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            guardian.mark.end()  # what the script has put into sessions of its own
            guardian.remove(child.pid)
        seen.take_all(tail)
        return _trial(seen, ended or _how(seen, child.returncode, _last(output)), time.monotonic() - since, peak)

    def _watch(
        self, child: subprocess.Popen[bytes], seen: _Seen, tail: Tail, terms: tuple[float, Decide]
    ) -> tuple[Optional[tuple[Ending, str]], int]:
        """Waits for the end of a process or of its allowance; its peak of memory in bytes."""
        (since, is_slow), peak, looked = terms, 0, 0.0
        while child.poll() is None:
            if self._told_to_end():
                raise InterruptedTrialError
            if seen.take_all(tail) and is_slow(seen.blocks):
                return ("stopped", f"slower than others after {len(seen.blocks)} blocks"), peak
            if time.monotonic() - looked > _MEMORY_LOOK_SECONDS:
                peak, looked = max(peak, group_bytes(child.pid)), time.monotonic()
            limit = self.limits.host_bytes
            if limit is not None and peak > limit:
                text = f"the process used {size_text(peak)} of the host's memory; the limit is {size_text(limit)}"
                return ("out of memory", text), peak
            over = seen.stage(self.limits, since)
            if over is not None:
                return over, peak
            self._tick()
            time.sleep(_LOOK_SECONDS)
        return None, peak


def _trial(seen: _Seen, ended: tuple[Ending, str], seconds: float, peak: int) -> SpeedTrial:
    return SpeedTrial(
        *ended,
        blocks=tuple(seen.blocks),
        losses=tuple(seen.losses),
        startup_seconds=seen.startup_seconds,
        first_step_seconds=seen.first_step_seconds,
        seconds=seconds,
        peak_bytes={**seen.peaks, "host": peak},
        traits=seen.traits,
        notes=tuple(seen.notes),
    )


def _how(seen: _Seen, returncode: int, printed: str) -> tuple[Ending, str]:
    """How a process ended that ended by itself."""
    last = next((line.strip() for line in reversed(printed.splitlines()) if line.strip()), "")
    if seen.end is not None:
        ending, reason = seen.end
        if ending == "measured" and not seen.blocks:
            return "refused", "fit ended before a block of steps could be timed: give it more data"
        told = f": {last}" if ending == "crash" and "exit code" in reason and last else ""
        return ending, reason + told
    if returncode == -signal.SIGKILL:
        return "out of memory", "killed by SIGKILL, as the kernel does when memory runs out"
    if is_exhaustion("", printed):
        said = next((line.strip() for line in printed.splitlines() if is_exhaustion("", line)), last)
        return "out of memory", said
    how = f"exit code {returncode}" if returncode >= 0 else f"signal {-returncode}"
    return "crash", f"{how}: {last or 'nothing was printed'}"


def _last(output: Path) -> str:
    """The last part of what a process printed, whatever bytes these are."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - _LAST_BYTES))
        text = file.read().decode("utf-8", "replace")
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)
