"""The other workers of a run, a line each, from their own evidence beside the chief's."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Union

from tfvolta.errors import EvidenceError
from tfvolta.evidence.launch_record import read_endings
from tfvolta.evidence.place import WORKERS
from tfvolta.evidence.reading import FILE_NAME, read
from tfvolta.report.verdict import verdict


@dataclasses.dataclass(frozen=True)
class WorkerLine:
    """What the evidence of one worker says.

    Attributes:
        name: Such as ``worker 1``.
        verdict: How it ended, in a sentence; or why its evidence cannot be read.
        ended: How its launcher saw it end; empty without one.
        path: Its evidence.
    """

    name: str
    verdict: str
    path: str
    ended: str = ""

    def to_json(self) -> dict[str, Any]:
        """The line as JSON values."""
        return dataclasses.asdict(self)


def worker_lines(path: Union[str, os.PathLike[str]]) -> list[WorkerLine]:
    """The other workers of the run whose chief wrote this evidence file, in the order of their ranks."""
    run = Path(path).parent
    ended = read_endings(run)
    lines = [_line(file) for file in sorted((run / WORKERS).glob(f"*/{FILE_NAME}"), key=_number)]
    return [dataclasses.replace(line, ended=ended.get(line.name, "")) for line in lines]


def chief_ended(path: Union[str, os.PathLike[str]], name: str) -> str:
    """How the launcher saw the process end that wrote this evidence file; empty without a launcher."""
    return read_endings(Path(path).parent).get(name, "")


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
