"""A config saved as a template: its text, and above it where it was measured and what it reached."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Sequence

from tfvolta.config.loading import load_config
from tfvolta.config.scalars import write_flow
from tfvolta.errors import EvidenceError, HistoryError, Problem
from tfvolta.evidence.schema import Evidence
from tfvolta.history.durable import write_durably
from tfvolta.history.entries import Entry
from tfvolta.history.figures import Figures

_SPEED_PACKAGES = ("tensorflow", "keras", "tf-keras", "tensorflow-addons", "horovod", "numpy")
_PLACES = ("run.directory",)  # a template is for other folders


def run_template(entry: Entry) -> str:
    """The text of a template from a run: its config file with its comments where that says all, else its values.

    Args:
        entry: The run.

    Raises:
        EvidenceError: The run did not end well, so that there is nothing to recommend.
    """
    evidence = entry.evidence
    if not entry.is_good:
        received = "; ".join(entry.tripped) or evidence.status
        problem = Problem(entry.run_id, "a completed run in its band", received, "a template says what it reached")
        raise EvidenceError("Only a run that ended well makes a template.", [problem])
    applied = entry.applied
    main = applied.main_file if applied else None
    if applied is not None and main is not None and len(applied.own_files) == 1 and not _changed(entry):
        body = main.text
    else:
        body = "".join(f"{line}\n" for line in _values(evidence))
    return header(_said(entry), evidence.command) + "\n" + body


def header(said: Sequence[tuple[str, str]], command: Sequence[str]) -> str:
    """The comment above a template.

    Args:
        said: Words and what they are about, in order; empty ones are left out.
        command: That made what is saved.
    """
    lines = [f"{name}: {text}" for name, text in said if text]
    lines.append(f"Measured by: {' '.join(command)}")
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def save(path: Path, text: str, force: bool) -> None:
    """Writes a template, and sees that it loads.

    Raises:
        ConfigError: The text is no config.
        HistoryError: The file exists, or cannot be written.
    """
    if path.exists() and not force:
        problem = Problem(
            str(path), "a name that is not taken", "a file of that name", fix="add --force, or another NAME"
        )
        raise HistoryError("A template of that name exists.", [problem])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.stem}.unfinished.yaml")  # in the same folder, where what it extends is found
        draft.write_text(text, encoding="utf-8")
        try:
            load_config(str(draft))
        finally:
            draft.unlink()
        write_durably(path, text.encode())
    except OSError as error:
        problem = Problem(
            str(path), "a file that can be written", error.strerror or str(error), fix="choose another --to"
        )
        raise HistoryError("The template cannot be written.", [problem]) from error


def in_words(figures: Figures) -> str:
    """The figures of a run in a line."""
    parts = []
    if figures.examples_per_second is not None:
        parts.append(f"{figures.examples_per_second:,.4g} examples/s")
    if figures.step_seconds is not None:
        parts.append(f"{1e3 * figures.step_seconds:.4g} ms a step (median)")
    if figures.peak_bytes is not None:
        parts.append(f"{figures.peak_bytes / 2**20:,.0f} MiB at the peak")
    if figures.loss is not None:
        parts.append(f"last loss {figures.loss:.4g}")
    return ", ".join(parts)


def machine_in_words(facts: Any) -> str:
    """The machine of a run in a line."""
    if facts is None:
        return ""
    names = [gpu.name for gpu in facts.gpus]
    gpus = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    cpu = facts.cpu
    driver = f"driver {facts.driver}" if facts.driver else ""
    return ", ".join(filter(None, [*gpus, f"{cpu.model or 'CPU'}, {cpu.cores} cores", driver]))


def versions_in_words(stack: Optional[str], versions: Mapping[str, str]) -> str:
    """The versions that speed hangs on, in a line."""
    known = [f"{name} {versions[name]}" for name in ("tfvolta", "python", *_SPEED_PACKAGES) if versions.get(name)]
    return ", ".join([*([stack] if stack else []), *known])


def _changed(entry: Entry) -> bool:
    """Whether overrides or arguments changed what the files say."""
    given = {key: str(origin) for key, origin in entry.evidence.config.provenance.items() if key not in _PLACES}
    return any(origin.startswith(("override", "argument")) for origin in given.values())


def _said(entry: Entry) -> list[tuple[str, str]]:
    evidence = entry.evidence
    commit = entry.applied.commit if entry.applied else None
    facts = evidence.facts
    own = {"tfvolta": entry.applied.tfvolta if entry.applied else "", "python": facts.python if facts else ""}
    steps = evidence.measurements.get("throughput")
    timed = steps.get("timed_steps") if isinstance(steps, Mapping) else None
    measured = in_words(entry.figures)
    return [
        ("Model", ", ".join(_models(evidence))),
        ("Machine", machine_in_words(evidence.facts)),
        ("Versions", versions_in_words(evidence.stack, {**own, **evidence.versions})),
        ("Measured", f"{measured}; one run, {timed} steps timed" if measured and timed else measured),
        ("Run", f"{entry.run_id}, {evidence.started[:10]}"),
        ("Commit", f"{commit.id}{' with changes' if commit.dirty else ''}" if commit else ""),
    ]


def _models(evidence: Evidence) -> Iterator[str]:
    for fit in evidence.fits[:3]:
        yield f"{fit.get('model')} ({fit.get('class')})"
    if evidence.script:
        yield f"in {os.path.basename(evidence.script)}"


def _values(evidence: Evidence) -> Iterator[str]:
    """Every value that somebody gave, as YAML, with its origin beside it."""
    given = evidence.config.provenance
    for section, values in evidence.config.values.items():
        if values is None:
            continue
        lines = list(_lines(values, given, section, "  "))
        if lines:
            yield f"{section}:"
            yield from lines
        elif section in given:
            yield f"{section}: {{}}"


def _lines(values: Mapping[str, Any], given: Mapping[str, Any], prefix: str, indent: str) -> Iterator[str]:
    for name, value in values.items():
        key = f"{prefix}.{name}"
        if key in _PLACES:
            continue
        if key in given:
            origin = " ".join(json.dumps(str(given[key]), ensure_ascii=True)[1:-1].split())
            yield f"{indent}{name}: {write_flow(value)}  # {origin}"
        elif isinstance(value, Mapping):
            inner = list(_lines(value, given, key, indent + "  "))
            if inner:
                yield f"{indent}{name}:"
                yield from inner
