"""What the process of a speed trial is asked to do, and the lines in which it says how far it is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class SpeedRequest:
    """One process that times training steps.

    Attributes:
        config: Config file or name; None for the embedded default.
        overrides: ``KEY=VALUE`` as for ``--set``; later ones win.
        script: The training script.
        arguments: Its own arguments.
        seed: Of Python, NumPy and TensorFlow, from before the first layer on; it takes the place of ``run.seed``.
        fit: Which call of ``fit`` is timed, from 1; those before it run as they are.
        blocks: Blocks of steps to time.
        block_seconds: Least time of a block.
        warmup_calls: Calls of the train function before the first block.
        warmup_seconds: Least time of these, after the first call.
        warmup_epochs: Epochs before it: one where the batches of the first are kept for the others.
        describe: Whether to say what the model and its data are, once the blocks are timed.
        lines: File that takes what the process says.
        started: Clock (``time.time``) at which it was started.
    """

    config: Optional[str]
    overrides: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    seed: int = 0
    fit: int = 1
    blocks: int = 16
    block_seconds: float = 0.25
    warmup_calls: int = 2
    warmup_seconds: float = 0.25
    warmup_epochs: int = 0
    describe: bool = False
    lines: str = ""
    started: float = 0.0

    def write(self, path: Path) -> None:
        """Writes the request."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> SpeedRequest:
        """Reads one."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**found, "overrides": tuple(found["overrides"]), "arguments": tuple(found["arguments"])})


class Lines:
    """Says how far a process is: one JSON object a line, each whole before the next begins."""

    def __init__(self, path: str) -> None:
        self._path = path

    def say(self, event: str, **values: Any) -> None:
        """Adds a line."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **values}) + "\n")


class Tail:
    """Reads the lines that have come since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._place = path, 0

    def new(self) -> list[dict[str, Any]]:
        """Whole lines only; what is no JSON object is passed over."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._place += len(whole)
        found = []
        for line in whole.splitlines():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            if isinstance(values, dict):
                found.append(values)
        return found
