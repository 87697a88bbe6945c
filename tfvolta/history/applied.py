"""What a run applied, as ``applied.json`` in its folder keeps it: all that its evidence does not say of its config."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Optional, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tfvolta.config.files import TEMPLATE_PREFIX
from tfvolta.config.given import Given
from tfvolta.errors import Problem
from tfvolta.evidence.values import Text
from tfvolta.history.commit import Commit

FILE_NAME = "applied.json"
VERSION = 1


class _Kept(BaseModel):
    """Part of an entry. What a newer tfvolta added is passed over: ``readable_from`` says whether that is right."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ConfigFile(_Kept):
    """A config file as it was read, comments included.

    Attributes:
        name: As it was referred to.
        path: Where it lay, absolute; of a template of the package too.
        text: All of it.
    """

    name: Text
    path: Text
    text: str

    @property
    def is_template(self) -> bool:
        """Whether it came with the package, and so is nobody's to write."""
        return self.name.startswith(TEMPLATE_PREFIX)


class Applied(_Kept):
    """What one run applied.

    Attributes:
        version: Of this schema; raised when a field is added.
        readable_from: The oldest version whose readers understand it.
        reference: The config file or template that was asked for; null for one made in Python.
        files: That file first, and those that it extends.
        overrides: Words of ``--set``, in order.
        script: The training script, absolute.
        sources: SHA-256 of the script and of the Python files beside it, by file name.
        commit: Where the project stood; null outside git.
        tfvolta: Its version.
        machine: Hash of what decides speed on a machine: GPUs, links and processors, not its name.
    """

    version: int = VERSION
    readable_from: int = 1
    run_id: str = Field(min_length=1)
    written: str
    reference: Optional[Text] = None
    files: tuple[ConfigFile, ...] = ()
    overrides: tuple[Text, ...] = ()
    script: Optional[Text] = None
    sources: dict[str, str] = Field(default_factory=dict)
    commit: Optional[Commit] = None
    tfvolta: str = ""
    machine: str = ""

    @property
    def own_files(self) -> tuple[ConfigFile, ...]:
        """Those of its files that are the user's."""
        return tuple(file for file in self.files if not file.is_template)

    @property
    def main_file(self) -> Optional[ConfigFile]:
        """The user's file that was asked for; None for a template, or nothing."""
        return self.files[0] if self.files and not self.files[0].is_template else None


def files_of(given: Given) -> tuple[ConfigFile, ...]:
    """The files that a config was loaded from; one that several extend is kept once."""
    kept = {file.path: ConfigFile(name=file.name, path=file.path, text=file.text) for file in given.files}
    return tuple(kept.values())


def machine_hash(facts: Any) -> str:
    """A hash of what decides speed on a machine.

    Args:
        facts: ``tfvolta.facts.schema.Facts``; None gives an empty word.
    """
    if facts is None:
        return ""
    cpu = facts.cpu
    what = {
        "gpus": [(gpu.name, gpu.memory_mb) for gpu in facts.gpus],
        "cpu": (cpu.model, cpu.cores, cpu.cores_allowed, cpu.cores_limit),
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]


def read_applied(folder: Path) -> Union[Applied, Problem, None]:
    """What a run applied.

    Args:
        folder: Of the run.

    Returns:
        None where nothing was kept; a problem that names the file where it cannot be read.
    """
    path = folder / FILE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        return _damaged(path, "a readable file", error.strerror or str(error))
    except (ValueError, RecursionError) as error:
        return _damaged(path, "JSON", str(error).splitlines()[0][:100], "it was changed by hand or copied in part")
    if not isinstance(content, dict):
        return _damaged(path, "a JSON object", f"a JSON {type(content).__name__}")
    oldest = content.get("readable_from", 1)
    if not isinstance(oldest, int) or oldest > VERSION:
        why = "it was written by a newer tfvolta"
        return _damaged(path, f"an entry that version {VERSION} can read", f"readable_from {oldest!r}", why)
    try:
        return Applied.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        return _damaged(path, f"an entry with a sound {where}", fault["msg"], "it was changed by hand")


def _damaged(path: Path, expected: str, received: str, why: str = "") -> Problem:
    fix = "restore it from a copy, or go on without: the other runs are as they were"
    return Problem(os.fspath(path), expected, received, why, fix)
