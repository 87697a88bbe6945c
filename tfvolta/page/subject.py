"""What a page is about: runs, searches, benches, ladders and estimates, told apart by what their files hold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from pydantic import ValidationError

from tfvolta.errors import EvidenceError, Problem
from tfvolta.evidence.ladders import FILE_NAME as LADDER_FILE
from tfvolta.evidence.reading import FILE_NAME as RUN_FILE
from tfvolta.evidence.reading import latest, locate, read
from tfvolta.evidence.schema import Evidence
from tfvolta.tune.result import FILE_NAME as TUNE_FILE
from tfvolta.tune.result import TuneResult

if TYPE_CHECKING:
    from tfvolta.bench.result import BenchResult

BENCH_FILE = "bench.json"  # tfvolta.bench.result says so too, and needs numpy
_FILES = (RUN_FILE, TUNE_FILE, BENCH_FILE, LADDER_FILE)


@dataclasses.dataclass(frozen=True)
class Subjects:
    """What was given, each with its file, in the order given.

    Attributes:
        runs: Evidence of runs.
        searches: Results of ``tfvolta tune``.
        benches: Results of ``tfvolta bench``.
        ladders: Results of ``tfvolta ladder``.
        estimates: What ``tfvolta estimate scaling --json`` printed, or was computed for a run; by a name.
    """

    runs: tuple[tuple[Path, Evidence], ...] = ()
    searches: tuple[tuple[Path, TuneResult], ...] = ()
    benches: tuple[tuple[Path, BenchResult], ...] = ()
    ladders: tuple[tuple[Path, Mapping[str, Any]], ...] = ()
    estimates: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    @property
    def files(self) -> list[Path]:
        """All files."""
        found = [path for path, _ in self.runs] + [path for path, _ in self.searches]
        found += [path for path, _ in self.benches] + [path for path, _ in self.ladders]
        return found


def read_subjects(words: Sequence[str], directory: str) -> Subjects:
    """Reads what the command line names.

    Args:
        words: Folders, files, or run ids; nothing means the last run.
        directory: Folder of runs in which ids are looked up.

    Raises:
        EvidenceError: There is no such thing, or it cannot be read.
    """
    files = [file for word in words for file in _files(word, directory)] or [latest(directory)]
    found: dict[str, list[Any]] = {field.name: [] for field in dataclasses.fields(Subjects)}
    for file in dict.fromkeys(files):
        kind, content = _read(file)
        found[kind].append((str(file) if kind == "estimates" else file, content))
    return Subjects(**{kind: tuple(items) for kind, items in found.items()})


def _files(word: str, directory: str) -> list[Path]:
    """The files of a word; what has none is left to evidence, which says what it looked for."""
    place = Path(word).expanduser()
    if place.is_file():
        return [place]
    for folder in (place, Path(directory).expanduser() / place):
        inside = [folder / name for name in _FILES if (folder / name).is_file()]
        if inside:
            return inside
    return [locate(word, directory)]


def _read(file: Path) -> tuple[str, Any]:
    """The kind of a file, as a field of ``Subjects``, and what it holds."""
    if file.name == RUN_FILE:
        return "runs", read(file)
    content = _json(file)
    if content.get("kind") == "bench":
        return "benches", _bench(file)
    if "baseline" in content and "trials" in content:
        return "searches", _search(file, content)
    if isinstance(content.get("rungs"), list) and "whole" in content:
        return "ladders", content
    if isinstance(content.get("points"), list) and isinstance(content.get("gradients"), dict):
        return "estimates", content
    return "runs", read(file)


def _json(file: Path) -> dict[str, Any]:
    """An object; an empty one where it is none, which evidence then explains."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _bench(file: Path) -> BenchResult:
    try:
        from tfvolta.bench.result import BenchResult
    except ImportError as error:
        fix = "pip install 'tfvolta[report]'"
        problem = Problem(str(file), "numpy, by which figures of a bench are read", "no numpy", str(error), fix)
        raise EvidenceError("The result of the bench cannot be read.", [problem]) from error
    return BenchResult.read(file)


def _search(file: Path, content: Mapping[str, Any]) -> TuneResult:
    try:
        return TuneResult.model_validate(content)
    except ValidationError as error:
        faults = [
            Problem(
                f"{file}: {'.'.join(map(str, each['loc']))}",
                each["msg"],
                repr(each["input"])[:80],
                fix="search again; or give another file",
            )
            for each in error.errors(include_url=False)[:8]
        ]
        raise EvidenceError("The result of the search cannot be read.", faults) from error
