"""What a search says while it runs: a bar on a terminal, a line for each trial where it is piped."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional, TextIO

from tfvolta.tune.search import Tried

_REFRESH_SECONDS = 0.5


class Progress:
    """Shows how far a search is, the best so far, and how much time is left.

    It has no thread of its own: trials are started by forking. Whoever waits calls ``tick``.
    """

    def __init__(self, stream: Optional[TextIO] = None):
        self._stream = sys.stderr if stream is None else stream
        self._bar: Any = None
        self._task: Any = None
        self._refreshed = 0.0
        self._seconds: list[float] = []
        self._base: Optional[float] = None
        self._best = 0.0
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
            self._bar = Bar(
                *columns, TextColumn("{task.fields[best]}"), console=console, auto_refresh=False, transient=True
            )
            self._bar.start()

    def begin(self, what: str, total: int) -> None:
        """A stage with so many processes begins."""
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total, best=self._best_text(total))
            self._bar.refresh()

    def trial(self, tried: Tried, most: int) -> None:
        """A trial has ended.

        Args:
            tried: Which.
            most: Trials that may be made in all.
        """
        trial = tried.trial
        if not tried.reused:
            self._seconds.append(trial.seconds)
        if self._base is None and trial.rate:
            self._base = self._best = trial.rate
        if trial.ending == "measured":
            self._best = max(self._best, trial.rate)
        rate = self._rate_text(trial.rate) if trial.rate else ""
        words = " ".join(tried.words) or "the config as it is"
        reason = trial.reason.splitlines()[0] if trial.reason and trial.ending not in ("measured", "stopped") else ""
        said = ", ".join(filter(None, (trial.ending, rate, reason)))
        source = "from history" if tried.reused else f"{trial.seconds:.1f} s"
        left = self._left(most - tried.number - 1)
        self.line(f"trial {tried.number}: {words}: {said} ({source}); {self._best_text(0)}{left}")
        self._advance(tried.number + 1)

    def round(self, count: int, total: int) -> None:
        """A process of the repeats at the end has ended."""
        if self._bar is None:
            self.line(f"repeat {count} of {total}{self._left(total - count)}")
        self._advance(count)

    def line(self, text: str) -> None:
        """Says a line, above the bar where there is one."""
        if self._bar is not None:
            self._bar.console.print(f"tfvolta: {text}", soft_wrap=True)
        else:
            print(f"tfvolta: {text}", file=self._stream, flush=True)

    def tick(self) -> None:
        """Called all the time while a process runs."""
        if self._bar is not None and time.monotonic() - self._refreshed > _REFRESH_SECONDS:
            self._refreshed = time.monotonic()
            self._bar.refresh()

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _advance(self, done: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, best=self._best_text(0))
            self._bar.refresh()

    def _best_text(self, total: int) -> str:
        del total
        return f"best {self._best / self._base:.2f}x the baseline" if self._base else ""

    def _rate_text(self, rate: float) -> str:
        return f"{rate:,.1f}/s, {rate / self._base:.2f}x" if self._base else f"{rate:,.1f}/s"

    def _left(self, processes: int) -> str:
        """How long the rest takes at most, by what trials took so far."""
        if not self._seconds or processes <= 0:
            return ""
        seconds = processes * sum(self._seconds) / len(self._seconds)
        return f"; at most {seconds / 60:.0f} min left" if seconds >= 120 else f"; at most {seconds:.0f} s left"
