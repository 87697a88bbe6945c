"""A run's evidence, printed for a person."""

from __future__ import annotations

import shlex
from typing import Any, Optional

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tfvolta.evidence.schema import Evidence, OutcomeRecord, PlanStep
from tfvolta.outcome import Status
from tfvolta.report.gains import print_faults, print_gains
from tfvolta.report.style import fields, heading, make_console, new_table, print_path, problem_text, status_text
from tfvolta.report.verdict import verdict
from tfvolta.report.words import shown
from tfvolta.report.workers import chief_ended, worker_lines

# With the other columns this fits into 80 characters; what is longer is given whole below the table.
_LONGEST_CELL = 21
_INTERNAL = ("fit", "model", "step_sample")  # number of the fit, fingerprint of the model, single times for charts
_VERDICT_COLOURS = {"completed": "green", "failed": "red", "refused": "red", "interrupted": "yellow"}


def print_report(
    evidence: Evidence, path: Optional[str] = None, console: Optional[Console] = None, at_end: bool = False
) -> None:
    """Prints what was asked for, how it ended, what was measured, and where the files are.

    Args:
        evidence: Of the run.
        path: Its file, printed at the end.
        console: Where to print; standard output when absent.
        at_end: Whether the run ends just now: its other workers still run, and its error is printed after the report.
    """
    console = make_console(console)
    console.print(Text(verdict(evidence), style=f"bold {_VERDICT_COLOURS.get(evidence.status, 'yellow')}"))
    fields(console, _header(evidence))
    ended = chief_ended(path, evidence.worker.name) if path is not None and evidence.worker is not None else ""
    if ended:
        fields(console, [("launcher", ended)])
    _print_problems(console, evidence)
    _print_settings(console, evidence)
    _print_measurements(console, evidence)
    print_gains(console, evidence, path)
    print_faults(console, evidence)
    if not at_end:
        _print_error(console, evidence)
    if path is not None:
        if not at_end:
            _print_workers(console, path)
        heading(console, "Files")
        print_path(console, "evidence", path)


def _header(evidence: Evidence) -> list[tuple[str, str]]:
    facts = evidence.facts
    pairs = [("run", evidence.run_id), ("started", evidence.started)]
    if evidence.script:
        pairs.append(("script", evidence.script))
    if evidence.command:
        pairs.append(("command", shlex.join(evidence.command)))
    if facts is not None:
        named = [name for name in ("tensorflow", "keras", "tf_keras", "tf-keras") if name in evidence.versions]
        versions = [f"{name} {evidence.versions[name]}" for name in named]
        pairs.append(("stack", ", ".join([evidence.stack or facts.stack, *versions])))
        names = [gpu.name for gpu in facts.gpus]
        gpus = ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names)) or "no GPU"
        pairs.append(("machine", f"{facts.host or evidence.host or 'unnamed'}: {gpus}, {facts.cpu.cores} CPU cores"))
    elif evidence.stack:
        pairs.append(("stack", evidence.stack))
    if evidence.worker is not None:
        restarts = f", start {evidence.worker.restart + 1}" if evidence.worker.restart else ""
        pairs.append(("process", f"{evidence.worker.name} of {evidence.worker.workers}{restarts}"))
    return pairs


def _print_problems(console: Console, evidence: Evidence) -> None:
    for title, problems in (("Conflicts", evidence.conflicts), ("Contradictions", evidence.contradictions)):
        if problems:
            heading(console, title)
        for problem in problems:
            console.print(Padding(problem_text(problem), (0, 0, 0, 2), expand=False))
    if evidence.warnings:
        heading(console, "Warnings")
        for warning in evidence.warnings:
            console.print(Padding(Text(warning, style="yellow"), (0, 0, 0, 2), expand=False))


def _print_settings(console: Console, evidence: Evidence) -> None:
    steps = {step.knob: step for step in evidence.plan}
    names = list(dict.fromkeys([*steps, *evidence.outcomes]))
    if not names:
        return
    heading(console, "Settings")
    table = new_table("setting", "requested", "planned", "applied", "verified")
    for name in names:
        table.add_row(*_row(name, steps.get(name), evidence.outcomes.get(name)))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    _print_messages(console, evidence, names, steps)


def _row(name: str, step: Optional[PlanStep], outcome: Optional[OutcomeRecord]) -> list[Any]:
    status = outcome.status if outcome is not None else Status.PENDING
    # An outcome's phase is that of the last look; the setting was made in the phase of its knob.
    phase = step.phase if step is not None else outcome.phase if outcome is not None else None
    return [
        Text(name),
        Text(shown(_requested(step, outcome), _LONGEST_CELL)),
        status_text(step.status) if step is not None else Text("-"),
        Text(f"in {phase}" if outcome is not None and outcome.applied_at else "no"),
        status_text(status),
    ]


def _requested(step: Optional[PlanStep], outcome: Optional[OutcomeRecord]) -> Any:
    return step.value if step is not None else outcome.value if outcome is not None else None


def _print_messages(console: Console, evidence: Evidence, names: list[str], steps: dict[str, PlanStep]) -> None:
    """What was seen of each setting; of one that was not reached, what was forecast."""
    lines = []
    whys = [problem.why for problem in evidence.error.problems] if evidence.error is not None else []
    for name in names:
        outcome = evidence.outcomes.get(name)
        value = shown(_requested(steps.get(name), outcome))
        cut = f"requested {value}: " if len(value) > _LONGEST_CELL else ""
        if outcome is not None and outcome.message:
            lines.append((name, cut + ("see the error below" if outcome.message in whys else outcome.message)))
    if lines:
        heading(console, "What was seen")
        fields(console, lines)


def _print_measurements(console: Console, evidence: Evidence) -> None:
    for name, values in evidence.measurements.items():
        rows = measured(values)
        if rows:
            heading(console, f"Measured: {name.replace('_', ' ')}")
            fields(console, rows)
    if evidence.fits:
        heading(console, "Fits")
        fields(console, [(f"fit {number}", _in_words(fit)) for number, fit in enumerate(evidence.fits, start=1)])


def measured(values: Any) -> list[tuple[str, str]]:
    """A measurement as names and values in a line each; what is empty or a list of objects is in the file alone."""
    if not isinstance(values, dict):
        return [("value", _in_words(values))]
    said = {str(key): value for key, value in values.items() if not _is_internal(str(key), value)}
    return [(key, _in_words(value)) for key, value in said.items()]


def _is_internal(key: str, value: Any) -> bool:
    """Whether a figure says nothing to a person: nothing, keys by which programs join figures, records of steps."""
    objects = isinstance(value, list) and bool(value) and all(isinstance(item, (dict, list)) for item in value)
    return value is None or value in ("", [], {}) or key in _INTERNAL or objects


def _in_words(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, (dict, list)) for item in value):
        return f"{len(value)} entr{'y' if len(value) == 1 else 'ies'}"
    if isinstance(value, list) and len(value) > 8:
        return f"{shown(value[:8])}, ... ({len(value)} values)"
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if item is not None}
        return ", ".join(f"{key}={_in_words(item)}" for key, item in kept.items()) or "none"
    return "not measured" if value is None else shown(value)


def _print_workers(console: Console, path: str) -> None:
    """A line for each other worker of the run; its own evidence says more."""
    lines = worker_lines(path)
    if lines:
        heading(console, "Other workers")
        said = [
            (line.name, f"{line.verdict} The launcher: {line.ended}." if line.ended else line.verdict) for line in lines
        ]
        fields(console, said)


def _print_error(console: Console, evidence: Evidence) -> None:
    error = evidence.error
    if error is None:
        return
    heading(console, "Error")
    console.print(Padding(Text(f"{error.type}: {error.message}", style="red"), (0, 0, 0, 2), expand=False))
    for problem in error.problems:
        if problem not in evidence.conflicts and problem not in evidence.contradictions:
            console.print(Padding(problem_text(problem), (0, 0, 0, 2), expand=False))
    if error.traceback:
        lines = [f"  {line}" for line in error.traceback.rstrip().splitlines()]
        console.print(Text("\n".join(lines), style="dim"), soft_wrap=True)
