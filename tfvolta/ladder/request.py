"""What the process of a rung is asked to do, as a JSON file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Optional


@dataclasses.dataclass(frozen=True)
class RungRequest:
    """One run of a rung.

    Attributes:
        config: Config file or name; None for the embedded default.
        overrides: ``KEY=VALUE`` as for ``--set``.
        directory: Folder that takes the evidence.
        rung: Name of the rung.
        sections: Sections of the config that are in force.
        script: The training script.
        arguments: Its own arguments.
        steps: Each fit ends after so many steps; None for its own end.
        answer: File that takes the answer.
    """

    config: Optional[str]
    overrides: tuple[str, ...]
    directory: str
    rung: str
    sections: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    steps: Optional[int] = None
    answer: str = ""

    def write(self, path: Path) -> None:
        """Writes the request."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> RungRequest:
        """Reads one."""
        found = json.loads(path.read_text(encoding="utf-8"))
        lists = {name: tuple(found[name]) for name in ("overrides", "sections", "arguments")}
        return cls(**{**found, **lists})
