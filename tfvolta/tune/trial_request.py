"""What a trial's process is asked to do, and what it answers: two JSON files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Mapping, Optional


@dataclasses.dataclass(frozen=True)
class TrialRequest:
    """One trial.

    Attributes:
        config: Config file or name; None for the embedded default.
        overrides: ``KEY=VALUE`` as for ``--set``.
        script: The training script.
        arguments: Its own arguments.
        batch: Rows of a batch.
        steps: Steps to time.
        warmup_steps: Steps before, in which functions are traced and compiled.
        answer: File that takes the answer.
    """

    config: Optional[str]
    overrides: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    batch: int
    steps: int
    warmup_steps: int
    answer: str

    def write(self, path: Path) -> None:
        """Writes the request."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> TrialRequest:
        """Reads one."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**found, "overrides": tuple(found["overrides"]), "arguments": tuple(found["arguments"])})


def write_answer(path: str, ending: str, **figures: Any) -> None:
    """Writes an answer, whole or not at all."""
    unfinished = Path(f"{path}.unfinished")
    unfinished.write_text(json.dumps({"ending": ending, **figures}), encoding="utf-8")
    unfinished.replace(path)


def read_answer(path: str) -> Optional[Mapping[str, Any]]:
    """The answer; None where the process left none."""
    try:
        found: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found
