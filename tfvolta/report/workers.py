"""The other workers of a run, a line each, from their own evidence beside the chief's."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Union

from tfvolta.errors import EvidenceError
from tfvolta.evidence.place import WORKERS
from tfvolta.evidence.reading import FILE_NAME, read
from tfvolta.report.verdict import verdict


@dataclasses.dataclass(frozen=True)
class WorkerLine:
    """What the evidence of one worker says.

    Attributes:
        name: Such as ``worker 1``.
        verdict: How it ended, in a sentence; or why its evidence cannot be read.
        path: Its evidence.
    """

    name: str
    verdict: str
    path: str

    def to_json(self) -> dict[str, Any]:
        """The line as JSON values."""
        return dataclasses.asdict(self)


def worker_lines(path: Union[str, os.PathLike[str]]) -> list[WorkerLine]:
    """The other workers of the run whose chief wrote this evidence file, in the order of their ranks."""
    files = sorted((Path(path).parent / WORKERS).glob(f"*/{FILE_NAME}"), key=_number)
    return [_line(file) for file in files]


def _number(file: Path) -> tuple[str, int]:
    job, _, number = file.parent.name.rpartition("-")
    return job, int(number) if number.isdigit() else 0


def _line(file: Path) -> WorkerLine:
    try:
        evidence = read(file)
    except EvidenceError as error:
        return WorkerLine(file.parent.name, error.summary, str(file))
    name = evidence.worker.name if evidence.worker is not None else file.parent.name
    reason = f" {evidence.error.problems[0].received}." if evidence.error and evidence.error.problems else ""
    return WorkerLine(name, verdict(evidence) + reason, str(file))
