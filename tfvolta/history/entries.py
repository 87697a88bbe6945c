"""The history of a folder of runs: one entry a run, newest first; what is damaged is named and passed over."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Iterator, Optional, Sequence, Union

from tfvolta.errors import EvidenceError, Problem
from tfvolta.evidence.ladders import own_arguments
from tfvolta.evidence.reading import DEFAULT_DIRECTORY, locate, read
from tfvolta.evidence.reading import FILE_NAME as EVIDENCE
from tfvolta.evidence.schema import Evidence
from tfvolta.history.applied import FILE_NAME, Applied, ConfigFile, read_applied
from tfvolta.history.figures import Figures, figures_of

_Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One run.

    Attributes:
        folder: Of the run, wherever it lies now.
        evidence: Of the run.
        applied: What it applied beside that; None for a run of an older tfvolta, or one whose disk was full.
    """

    folder: Path
    evidence: Evidence
    applied: Optional[Applied]

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.evidence.run_id

    @property
    def figures(self) -> Figures:
        """What it measured, in short."""
        return figures_of(self.evidence)

    @property
    def script(self) -> Optional[str]:
        """The training script."""
        return self.evidence.script or (self.applied.script if self.applied else None)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The script's own arguments."""
        if self.evidence.script is not None:
            return tuple(own_arguments(self.evidence))
        return tuple(self.evidence.command[1:])  # a script that calls tfvolta itself

    @property
    def tripped(self) -> tuple[str, ...]:
        """What its guard said: in what it left the run that it was held to."""
        guard = self.evidence.measurements.get("guard")
        found = guard.get("tripped") if isinstance(guard, dict) else None
        return tuple(str(each.get("what")) for each in found or () if isinstance(each, dict))

    @property
    def is_good(self) -> bool:
        """Whether it came to its end and left no band on the way."""
        return self.evidence.status == "completed" and not self.tripped

    @property
    def config(self) -> str:
        """What its config was, in words."""
        if self.applied is None or not (self.applied.reference or self.applied.overrides):
            return "in Python" if self.applied else "not kept"
        more = len(self.applied.overrides)
        name = os.path.basename(self.applied.reference or "")
        return " ".join(filter(None, [name, f"+ {more} set" if more else ""]))

    @property
    def own_files(self) -> tuple[ConfigFile, ...]:
        """The user's config files that it was loaded from."""
        return self.applied.own_files if self.applied else ()

    @property
    def is_on_disk(self) -> bool:
        """Whether its config files are on disk now as they were then; False where it had none."""
        return bool(self.own_files) and all(text_of(place_of(file)) == file.text for file in self.own_files)


@dataclasses.dataclass(frozen=True)
class History:
    """All runs of a folder.

    Attributes:
        entries: Newest first.
        damaged: Entries that cannot be read, by name, with what is wrong.
    """

    entries: tuple[Entry, ...]
    damaged: tuple[Problem, ...]

    def in_use(self) -> frozenset[str]:
        """Ids of the runs whose config files are as they are on disk now: the newest for each main file."""
        found: dict[str, str] = {}
        for entry in self.entries:
            main = entry.applied.main_file if entry.applied else None
            if main is not None and main.path not in found and entry.is_on_disk:
                found[main.path] = entry.run_id
        return frozenset(found.values())

    def of_script(self, script: str) -> History:
        """Those of one script, named by path or by file name."""
        wanted = os.path.abspath(os.path.expanduser(script))
        own = [
            entry
            for entry in self.entries
            if entry.script is not None and (entry.script == wanted or os.path.basename(entry.script) == script)
        ]
        return History(tuple(own), self.damaged)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every text that a config file is known to have had: path and text."""
        for entry in self.entries:
            for file in entry.own_files:
                yield file.path, file.text


def read_history(directory: _Path = DEFAULT_DIRECTORY, most: Optional[int] = None) -> History:
    """The history of a folder of runs; a folder that is not there has none.

    Args:
        directory: Folder of runs.
        most: Look at so many only, those that were begun last.
    """
    folder = Path(directory).expanduser()
    places = sorted({path.parent for name in (EVIDENCE, FILE_NAME) for path in folder.glob(f"*/{name}")})
    if most is not None and len(places) > most:
        places = sorted(places, key=lambda place: place.stat().st_mtime_ns)[-most:]
    entries: list[Entry] = []
    damaged: list[Problem] = []
    for place in places:
        entry, problems = _entry(place)
        damaged += problems
        if entry is not None:
            entries.append(entry)
    entries.sort(key=lambda entry: (entry.evidence.started, entry.run_id), reverse=True)
    return History(tuple(entries), tuple(damaged))


def find_entry(run: str, directory: _Path = DEFAULT_DIRECTORY) -> Entry:
    """The entry of one run.

    Args:
        run: Its id, its folder, or its evidence file.
        directory: Folder of runs in which an id is looked up.

    Raises:
        EvidenceError: There is no such run, or its evidence or what it applied cannot be read.
    """
    place = locate(run, directory).parent
    applied = read_applied(place)
    if isinstance(applied, Problem):
        raise EvidenceError(f"What {place.name} applied cannot be read.", [applied])
    return Entry(place, read(place), applied)


def _entry(place: Path) -> tuple[Optional[Entry], Sequence[Problem]]:
    applied = read_applied(place)
    problems = [applied] if isinstance(applied, Problem) else []
    try:
        evidence = read(place)
    except EvidenceError as error:
        return None, [*problems, *(error.problems[:1] or (_unnamed(place, error),))]
    return Entry(place, evidence, None if isinstance(applied, Problem) else applied), problems


def _unnamed(place: Path, error: EvidenceError) -> Problem:
    return Problem(os.fspath(place), "the evidence of a run", error.summary)


def place_of(file: ConfigFile) -> Path:
    """Where a config file lies: where it lay, or, where that is gone, what its name means in this folder."""
    path = Path(file.path)
    named = Path(os.path.expanduser(file.name))
    return path if path.exists() or not named.exists() else Path(os.path.realpath(named))


def text_of(path: Path) -> Optional[str]:
    """The text of a config file; None where there is none that could be read."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
