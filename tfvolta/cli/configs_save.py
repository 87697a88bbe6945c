"""``tfvolta configs save``: what a run or a search has reached, as a template."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from tfvolta.tune.result import TuneResult

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def run_save(arguments: argparse.Namespace) -> int:
    """Writes the template.

    Raises:
        ConfigError: The name is none, or the config cannot be used.
        EvidenceError: There is no such run or search, or it has nothing to recommend.
        HistoryError: The template exists, or cannot be written.
    """
    from tfvolta.history.entries import find_entry
    from tfvolta.history.template import run_template, save

    path = _path(arguments.name, arguments.to)
    tuned = _search(arguments.source, arguments.runs)
    text = run_template(find_entry(arguments.source, arguments.runs)) if tuned is None else _tuned_text(tuned, path)
    save(path, text, arguments.force)
    use = f"tfvolta run --config {path} train.py"
    if arguments.json:
        print(json.dumps({"path": str(path), "text": text}, indent=2))
    else:
        print(f"{path} is written. Use it: {use}")
    return 0


def _path(name: str, folder: str) -> Path:
    from tfvolta.errors import ConfigError, Problem

    stem = name[: -len(".yaml")] if name.endswith(".yaml") else name
    if not _NAME.fullmatch(stem):
        problem = Problem("NAME", "a plain name", name, "it becomes a file's", "choose letters, digits, - and _")
        raise ConfigError("That cannot be the name of a template.", [problem])
    return Path(folder).expanduser() / f"{stem}.yaml"


def _search(source: str, runs: str) -> Optional[Path]:
    """The result of a search of that name; None where it is not one."""
    from tfvolta.tune.result import FILE_NAME

    place = Path(source).expanduser()
    candidates = (place, place / FILE_NAME, Path(runs).expanduser() / place / FILE_NAME)
    return next((each for each in candidates if each.is_file() and each.name == FILE_NAME), None)


def _tuned_text(path: Path, target: Path) -> str:
    """The config that a search has written, with what it found above it."""
    from tfvolta.config.loading import load_config
    from tfvolta.errors import EvidenceError, Problem
    from tfvolta.history.template import header

    result = _result(path)
    found = Path(result.tuned_config) if result.tuned_config else None
    if found is not None and not found.exists():
        found = path.parent / found.name  # the search's folder was moved
    if found is None or not found.exists():
        received = "none" if result.tuned_config is None else f"{result.tuned_config}, which is gone"
        fix = result.reproduce or "run the search again"
        problem = Problem(str(path), "a search that wrote a config", received, result.sentence, fix)
        raise EvidenceError("This search has no config to save.", [problem])
    text = found.read_text(encoding="utf-8")
    own = [file for file in load_config(str(found)).given.files if not file.name.startswith("tfvolta:")]
    if len(own) > 1 and found.absolute().parent != target.absolute().parent:
        why = f"it extends {own[1].name}, which lies beside it"
        problem = Problem(
            str(found), "a config that can be moved", "extends", why, f"add --to {found.absolute().parent}"
        )
        raise EvidenceError("This config cannot be saved in another folder.", [problem])
    return header(_said(result), result.command) + "\n" + text


def _result(path: Path) -> TuneResult:
    from pydantic import ValidationError

    from tfvolta.errors import EvidenceError, Problem
    from tfvolta.tune.result import TuneResult

    try:
        return TuneResult.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        problem = Problem(str(path), "the result of a search", str(error).splitlines()[0][:100])
        raise EvidenceError("This search cannot be read.", [problem]) from error


def _said(result: TuneResult) -> list[tuple[str, str]]:
    from tfvolta.history.template import versions_in_words

    machine = result.machine
    cards = [f"{machine.gpus.count(name)} x {name}" for name in dict.fromkeys(machine.gpus)]
    driver = f"driver {machine.driver}" if machine.driver else ""
    parts = [*cards, f"{machine.cpu or 'CPU'}, {machine.cores:g} cores", driver]
    script = " ".join([Path(result.script).name, *result.arguments])
    rows = [
        f"{row.setting}={row.value}: {row.ratio.estimate:.3f} ({row.ratio.low:.3f} to {row.ratio.high:.3f})"
        for row in result.ablation
        if row.ratio is not None
    ]
    return [
        ("Model", script),
        ("Machine", ", ".join(filter(None, parts))),
        ("Versions", versions_in_words(machine.stack, result.versions)),
        (
            "Measured",
            f"{result.sentence} Seeds {', '.join(str(seed) for seed in result.seeds)}; {result.created[:10]}.",
        ),
        ("What each setting buys", "; ".join(rows)),
        ("To measure again", result.reproduce),
    ]
