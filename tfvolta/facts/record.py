"""Facts on disk: record this machine, replay another one, and the recorded machines that come with the package."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import importlib.resources
import json
import os
import pathlib
from typing import Any, Union

from pydantic import ValidationError

from tfvolta.errors import FactsError, Problem
from tfvolta.facts.schema import Facts

_SCHEMA_VERSION: int = Facts.model_fields["schema_version"].default
_RECORD = "record them on the machine itself with: tfvolta facts --record FILE"


def record(facts: Facts, path: Union[str, os.PathLike[str]]) -> pathlib.Path:
    """Writes facts as JSON; a file that is there is replaced at once or not at all.

    Args:
        facts: From ``probe``. A ``source`` of ``live`` becomes the day of recording.
        path: The file; its folder is made.

    Raises:
        FactsError: The file cannot be written.
    """
    file = pathlib.Path(path)
    if facts.source == "live":
        day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        facts = facts.model_copy(update={"source": f"recorded live on {day}"})
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(facts.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
        os.replace(draft, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        problem = Problem(
            where=str(file),
            expected="a file that can be written",
            received=error.strerror or str(error),
            fix="give another path to --record",
        )
        raise FactsError("The facts cannot be recorded.", [problem]) from error
    return file


def replay(path: Union[str, os.PathLike[str]]) -> Facts:
    """Facts from a file that ``record`` wrote.

    Raises:
        FactsError: The file is missing, is not such a file, or is of a newer tfvolta; all problems at once.
    """
    file = pathlib.Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise _unreadable(file, "no file at this path", _RECORD) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "bytes that are no UTF-8 text"
        raise _unreadable(file, reason or str(error), _RECORD) from error
    return _parse(text, str(file))


def recorded_machines() -> list[str]:
    """Names of the recorded machines that come with the package."""
    return sorted(entry.name[: -len(".json")] for entry in _folder().iterdir() if entry.name.endswith(".json"))


def load(name_or_path: Union[str, os.PathLike[str]]) -> Facts:
    """Facts of a recorded machine by its name, such as ``dgx1``, or from a file.

    Raises:
        FactsError: There is no such name or file, or the file cannot be used.
    """
    text = os.fspath(name_or_path)
    names = recorded_machines()
    if text in names:
        entry = _folder() / f"{text}.json"
        return _parse(entry.read_text(encoding="utf-8"), f"recorded machine {text}")
    if os.sep in text or text.endswith(".json") or pathlib.Path(text).is_file():
        return replay(text)
    close = difflib.get_close_matches(text.lower().replace("-", "_"), names, n=1)
    problem = Problem(
        where="facts",
        expected=f"one of {', '.join(names)}, or the path of a recorded file",
        received=text or "an empty name",
        fix=f"did you mean {close[0]}?" if close else _RECORD,
    )
    raise FactsError(f"There is no recorded machine {text!r}.", [problem])


def _folder() -> Any:
    return importlib.resources.files("tfvolta.facts") / "recorded"


def _unreadable(file: pathlib.Path, received: str, fix: str) -> FactsError:
    problem = Problem(where=str(file), expected="a file of recorded facts", received=received, fix=fix)
    return FactsError("The recorded facts cannot be read.", [problem])


def _parse(text: str, where: str) -> Facts:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        problem = Problem(f"{where}:{error.lineno}", "JSON", f"{error.msg} at column {error.colno}", fix=_RECORD)
        raise FactsError("The recorded facts are not JSON.", [problem]) from error
    if not isinstance(raw, dict):
        problem = Problem(where, "a JSON object with the facts of a machine", f"a {type(raw).__name__}", fix=_RECORD)
        raise FactsError("The recorded facts are not facts.", [problem])
    version = raw.get("schema_version")
    if isinstance(version, int) and version > _SCHEMA_VERSION:
        problem = Problem(
            where=f"{where}: schema_version",
            expected=f"at most {_SCHEMA_VERSION}",
            received=str(version),
            why="a newer tfvolta recorded this file, and fields may mean something else",
            fix="pip install --upgrade tfvolta, or record the machine again with this version",
        )
        raise FactsError("The recorded facts are of a newer tfvolta.", [problem])
    try:
        return Facts.model_validate(raw)
    except ValidationError as error:
        raise FactsError(f"The recorded facts have {error.error_count()} faults.", _faults(error, where)) from error


def _faults(error: ValidationError, where: str) -> list[Problem]:
    problems = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"]) or "the whole file"
        missing, extra = fault["type"] == "missing", fault["type"] == "extra_forbidden"
        found = json.dumps(fault["input"], default=str)[:120]
        received = "nothing" if missing else "a key that facts do not have" if extra else found
        expected = "a value" if missing else "no such key" if extra else fault["msg"][:1].lower() + fault["msg"][1:]
        problems.append(Problem(f"{where}: {key}", expected, received, fix=_RECORD))
    return problems
