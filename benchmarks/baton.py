"""The side of a measured process of turns.py: it warms up, says that it is ready, and then waits for each turn.

    baton = Baton.from_environment()       # None where the script was started by hand
    baton.wait_for_warm_up()               # import, build and load before this line
    word = baton.ready(parameters=...)     # after the epochs in which everything is traced, compiled and tuned
    while word != STOP:
        ...                                # one epoch
        word = baton.report(seconds=..., examples=..., loss=...)

Words are JSON lines in two pipes whose numbers are in the environment. A process whose driver is gone ends itself.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from typing import Any, Optional

PIPES = "TURNS_PIPES"  # numbers of the pipe to read from and of the one to write to
WARM_UP, TURN, PROFILE, STOP = "warm up", "turn", "profile", "stop"
GONE = 17  # exit code of a process whose driver is gone


class Baton:
    """What passes between this process and the driver of turns.

    Args:
        source: Pipe with the driver's words.
        sink: Pipe for this process's lines.
    """

    def __init__(self, source: int, sink: int):
        self._source, self._sink = source, sink
        self._words: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    @classmethod
    def from_environment(cls) -> Optional[Baton]:
        """The baton that a driver gave to this process, or None; taken once, so that no child inherits it."""
        pipes = os.environ.pop(PIPES, "")
        if not pipes:
            return None
        source, sink = map(int, pipes.split(","))
        os.set_inheritable(source, False)
        os.set_inheritable(sink, False)
        return cls(source, sink)

    def wait_for_warm_up(self) -> None:
        """Returns when the device may be used for the first time."""
        self._say("built")
        self._words.get()

    def ready(self, **facts: Any) -> str:
        """Says that the next epoch is one to be measured; the driver's next word.

        Args:
            facts: What holds for the whole measurement: parameters, versions, device, seconds of the warm-up.
        """
        self._say("ready", **facts)
        return self._words.get()

    def report(self, **row: Any) -> str:
        """Gives the figures of an epoch; the driver's next word.

        Args:
            row: ``seconds`` and ``examples`` at least; the device has finished.
        """
        self._say("epoch", **row)
        return self._words.get()

    def profiled(self, **found: Any) -> str:
        """Gives what a profiler saw in an epoch that was asked for with ``PROFILE``; the driver's next word."""
        self._say("profile", **found)
        return self._words.get()

    def _say(self, event: str, **values: Any) -> None:
        line = json.dumps({"event": event, **values}) + "\n"
        with os.fdopen(self._sink, "w", encoding="utf-8", closefd=False) as file:
            file.write(line)

    def _listen(self) -> None:
        with os.fdopen(self._source, encoding="utf-8", closefd=False) as file:
            for line in file:
                self._words.put(line.strip())
        os._exit(GONE)  # also in the middle of a compilation, which no exception interrupts
