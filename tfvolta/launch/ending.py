"""How a process ended, in words and as an exit code."""

from __future__ import annotations

import dataclasses
import signal
from typing import Optional

from tfvolta.errors import StallError


@dataclasses.dataclass(frozen=True)
class Ended:
    """How one worker ended.

    Attributes:
        name: Such as ``worker 1``.
        returncode: Exit code, or minus the number of the signal that ended it.
        step: The step that it was last seen in; None where it gave no sign of life.
        lines: The last lines of its standard error.
        standstill: Who waits for it, where the run stood still because of it.
        because: What was wrong with the others when it failed.
    """

    name: str
    returncode: int
    step: Optional[int] = None
    lines: tuple[str, ...] = ()
    standstill: str = ""
    because: str = ""

    @property
    def code(self) -> int:
        """As a shell gives it: 128 and the number of the signal where one ended it."""
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    def __str__(self) -> str:
        """Such as ``worker 1 exited with code 9 (at step 6)``."""
        if self.standstill:
            how = "stands still"
        elif self.returncode >= 0:
            how = f"exited with code {self.returncode}"
        else:
            how = f"was ended by {signal_name(-self.returncode)}"
        place = f" (at step {self.step})" if self.step else ""
        why = "its watchdog saw no progress" if self.returncode == StallError.exit_code else ""
        why = self.standstill or self.because or why
        return f"{self.name} {how}{place}{f': {why}' if why else ''}"


def signal_name(number: int) -> str:
    """Such as ``SIGKILL``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
