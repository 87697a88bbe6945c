"""Finding and reading evidence: by folder, by file or by run id."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any, Optional, Union

from pydantic import ValidationError

from tfvolta.errors import EvidenceError, Problem
from tfvolta.evidence.schema import SCHEMA_VERSION, Evidence

FILE_NAME = "evidence.json"
DEFAULT_DIRECTORY = "runs"
_Path = Union[str, "os.PathLike[str]"]


def _unusable(path: Path, expected: str, received: str, why: str = "", fix: str = "") -> EvidenceError:
    fix = fix or "give another run, or train again to get new evidence"
    return EvidenceError(f"{path} is no usable evidence.", [Problem(str(path), expected, received, why, fix)])


def run_directories(directory: _Path = DEFAULT_DIRECTORY) -> list[Path]:
    """Folders of runs that have evidence, the one written last at the end."""
    files = [file for file in Path(directory).expanduser().glob(f"*/{FILE_NAME}") if file.is_file()]
    return [file.parent for file in sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.parent.name))]


def _not_found(run: str, directory: Path) -> EvidenceError:
    known = [folder.name for folder in run_directories(directory)]
    near = difflib.get_close_matches(run, known, n=1, cutoff=0.6)
    if near:
        fix = f"did you mean {near[0]}?"
    elif known:
        fix = f"the last run there is {known[-1]}"
    else:
        fix = "make one: tfvolta run train.py; or name its folder: tfvolta report --directory FOLDER"
    where = f"run {run}" if run else f"folder of runs {directory}"
    received = f"{len(known)} runs in {directory}" + (", none of that name" if known else "")
    problem = Problem(where, f"a run's folder, its {FILE_NAME}, or a run id in {directory}", received, fix=fix)
    return EvidenceError("No such run." if run else "There is no run yet.", [problem])


def locate(run: _Path, directory: _Path = DEFAULT_DIRECTORY) -> Path:
    """The evidence file of a run.

    Args:
        run: Folder of a run, its evidence file, or a run id.
        directory: Folder of runs in which a run id is looked up.

    Raises:
        EvidenceError: There is no such run.
    """
    place, runs = Path(run).expanduser(), Path(directory).expanduser()
    for candidate in (place, place / FILE_NAME, runs / place / FILE_NAME):
        if candidate.is_file():
            return candidate
    for folder in (place, runs / place):
        if folder.is_dir() and not run_directories(folder) and folder.resolve() != runs.resolve():
            raise _unusable(folder, f"a file {FILE_NAME} in it", "none", "the run ended before it wrote anything")
    if place.is_dir():
        return latest(place)
    raise _not_found(os.fspath(run), runs)


def latest(directory: _Path = DEFAULT_DIRECTORY) -> Path:
    """The evidence file of the run that was written last.

    Raises:
        EvidenceError: There is no run in that folder.
    """
    found = run_directories(directory)
    if not found:
        raise _not_found("", Path(directory).expanduser())
    return found[-1] / FILE_NAME


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        received = str(error.strerror or error)
        raise _unusable(path, "a readable file", received, fix="check the file's permissions") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, "UTF-8 text", f"the byte {error.object[error.start]:#04x} at {error.start}") from error
    except json.JSONDecodeError as error:
        received = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise _unusable(path, "JSON", received, "the file was changed by hand or copied in part") from error
    except RecursionError as error:
        raise _unusable(path, "evidence", "JSON nested too deeply") from error


def _check_version(path: Path, version: Any) -> None:
    if type(version) is not int:
        raise _unusable(path, f"schema_version {SCHEMA_VERSION}", f"schema_version {version!r}", "this is other JSON")
    if version != SCHEMA_VERSION:
        newer = version > SCHEMA_VERSION
        why = "it was written by a newer tfvolta" if newer else "no tfvolta ever wrote that version"
        fix = "update this one: pip install --upgrade tfvolta" if newer else ""
        raise _unusable(path, f"schema_version {SCHEMA_VERSION}", f"schema_version {version}", why, fix)


def _problems(path: Path, error: ValidationError) -> list[Problem]:
    """One problem a field, as the reader of the file sees it."""
    problems = []
    for fault in error.errors(include_url=False):
        received = repr(fault["input"])
        problems.append(
            Problem(
                where=f"{path}: {'.'.join(str(part) for part in fault['loc'])}",
                expected=fault["msg"],
                received="nothing" if fault["type"] == "missing" else received[:80] + "..." * (len(received) > 80),
                fix="give another run; this file was changed by hand or by another program",
            )
        )
    return problems


def read(run: _Path, directory: Optional[_Path] = None) -> Evidence:
    """The evidence of a run.

    Args:
        run: Folder of a run, its evidence file, or a run id.
        directory: Folder of runs in which a run id is looked up; ``runs`` when absent.

    Raises:
        EvidenceError: There is no such run, or its evidence is malformed or newer than this tfvolta.
    """
    path = locate(run, DEFAULT_DIRECTORY if directory is None else directory)
    content = _content(path)
    if not isinstance(content, dict):
        raise _unusable(path, "a JSON object", f"a JSON {type(content).__name__}")
    _check_version(path, content.get("schema_version"))
    try:
        return Evidence.model_validate(content)
    except ValidationError as error:
        raise EvidenceError(f"{path} is malformed evidence.", _problems(path, error)) from error
