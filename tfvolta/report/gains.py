"""What was gained in a run and what went wrong, for the end of its report."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Optional

from rich.console import Console

from tfvolta.evidence.ladders import ladder_of, own_arguments
from tfvolta.evidence.schema import Evidence
from tfvolta.report.faults import faults
from tfvolta.report.style import fields, heading


def print_gains(console: Console, evidence: Evidence, path: Optional[str]) -> None:
    """Prints what a ladder has measured on the same script under the same settings, or how to measure it.

    Args:
        console: Where to print.
        evidence: Of a run that trained to its end; nothing is printed of others.
        path: Its file.
    """
    if evidence.status != "completed" or not evidence.fits or not evidence.plan or evidence.script is None:
        return
    found = None if path is None else ladder_of(evidence, Path(path).resolve().parent.parent)
    heading(console, "What was gained")
    if found is None:
        fields(console, [("not measured", f"a ladder tells, section by section: {_command(evidence)}")])
        return
    file, ladder = found
    lines = [(rung["rung"], rung["gain"]["text"]) for rung in ladder["rungs"] if rung["gain"] is not None]
    lines += [(rung["rung"], f"adds nothing here: {rung['idle']}") for rung in ladder["rungs"] if rung["idle"]]
    lines += [(name, f"adds nothing here: {why}") for name, why in ladder["skipped"].items()]
    if ladder["whole"] is not None:
        lines.append(("altogether", ladder["whole"]["text"]))
    fields(console, [*lines, ("measured by", file)])


def print_faults(console: Console, evidence: Evidence) -> None:
    """Prints what went wrong, in a line each; the warnings have a place of their own in a report."""
    whys = [problem.why for problem in evidence.error.problems if problem.why] if evidence.error is not None else []
    found = [text for text in faults(evidence, warned=False) if not text.endswith(tuple(whys))]
    if found or (evidence.status == "completed" and evidence.fits):
        heading(console, "What went wrong")
        fields(
            console,
            [("-", text) for text in found] or [("nothing", "see the warnings above" * bool(evidence.warnings))],
        )


def _command(evidence: Evidence) -> str:
    """The command line that measures what this run has."""
    script = os.path.relpath(str(evidence.script), evidence.cwd or None)
    words, arguments = list(evidence.command), list(own_arguments(evidence))
    options = [word for word in words[2 : len(words) - len(arguments) - 1] if word not in ("--json", "--quiet")]
    if words[1:2] != ["run"]:
        options = []
    return shlex.join(["tfvolta", "ladder", *options, script, *arguments])
