"""A whole bench, as it is saved, printed as JSON and read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, Optional

from pydantic import Field, ValidationError

from tfvolta.bench.judged import Comparison, Gate
from tfvolta.bench.measured import Entry
from tfvolta.errors import EvidenceError, Problem
from tfvolta.evidence.schema import Record
from tfvolta.evidence.values import JsonObject, Text
from tfvolta.facts.schema import Facts

FILE_NAME = "bench.json"


class BenchResult(Record):
    """One bench.

    Attributes:
        created: ISO time, UTC.
        command: The command line that does it again.
        sizes: Of the workload.
        method: How figures and intervals are made, in words.
        load: Load average of the host before and after, and its processors.
    """

    schema_version: Literal[1] = 1
    kind: Literal["bench"] = "bench"
    created: str
    command: tuple[Text, ...]
    model: str
    description: Text
    sizes: dict[str, int]
    data: Text = "synthetic"
    steps: int
    warmup_epochs: int
    rounds: int
    seeds: tuple[int, ...]
    method: tuple[Text, ...]
    facts: Optional[Facts] = None
    load: JsonObject = Field(default_factory=dict)
    entries: tuple[Entry, ...]
    comparisons: tuple[Comparison, ...] = ()
    gates: tuple[Gate, ...] = ()

    def write(self, folder: Path) -> Path:
        """Writes it into a folder; the file is whole at every moment.

        Raises:
            OSError: It cannot be written.
        """
        path, unfinished = folder / FILE_NAME, folder / f".{FILE_NAME}"
        unfinished.write_text(json.dumps(self.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)
        return path

    @classmethod
    def read(cls, path: Path) -> BenchResult:
        """Reads one.

        Raises:
            EvidenceError: It is missing, or something else.
        """
        path = path / FILE_NAME if path.is_dir() else path
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, ValidationError) as error:
            problem = Problem(str(path), "a file that tfvolta bench wrote", str(error).splitlines()[0])
            raise EvidenceError("The result of the bench cannot be read.", [problem]) from error
