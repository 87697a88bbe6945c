"""``tfvolta configs list``, ``diff`` and ``rollback``: the configs that runs have had."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    from tfvolta.errors import Problem
    from tfvolta.history.difference import Difference
    from tfvolta.history.entries import Entry, History
    from tfvolta.history.rollback import Change

_COLUMNS = ("  run", "config", "status", "ex/s", "ms", "MiB", "loss", "commit")


def run_list(arguments: argparse.Namespace) -> int:
    """Prints the entries of a folder of runs, newest first.

    Raises:
        EvidenceError: The folder that was named is not there.
    """
    from tfvolta.history.entries import read_history

    _check_folder(arguments.runs)
    history = read_history(arguments.runs)
    if arguments.script is not None:
        history = history.of_script(arguments.script)
    in_use = history.in_use()
    if arguments.json:
        entries = [_json(entry, entry.run_id in in_use) for entry in history.entries]
        print(json.dumps({"entries": entries, "damaged": [vars(each) for each in history.damaged]}, indent=2))
        return 0
    _print_list(history, in_use, arguments.runs)
    _print_damaged(history.damaged)
    return 0


def run_diff(arguments: argparse.Namespace) -> int:
    """Prints the values that differ between two configs.

    Raises:
        ConfigError: A file or template cannot be used.
        EvidenceError: There is no such run.
    """
    from tfvolta.history.difference import differences, side_of

    a, b = (side_of(name, arguments.runs) for name in (arguments.a, arguments.b))
    found = differences(a, b)
    if arguments.json:
        sides = {name: {"name": side.name, "kind": side.kind} for name, side in (("a", a), ("b", b))}
        print(json.dumps({**sides, "differences": [vars(each) for each in found]}, indent=2))
        return 0
    _print_diff(found, a.name, b.name)
    return 0


def run_rollback(arguments: argparse.Namespace) -> int:
    """Shows what changes, and writes the config files back.

    Raises:
        EvidenceError: There is no such run, or it had no config file.
        HistoryError: A file was changed by hand, or cannot be written.
    """
    from tfvolta.history.entries import read_history
    from tfvolta.history.rollback import applied_of, carry_out, changes_to, check_known, former

    history = read_history(arguments.runs)
    run = arguments.id or str(former(history).folder)
    applied = applied_of(run, arguments.runs)
    changes = changes_to(applied, history)
    if not arguments.json:
        _print_changes(changes)
    if not arguments.force and not arguments.dry_run:
        check_known(changes)
    done = () if arguments.dry_run else carry_out(changes)
    content = {"to": applied.run_id, "files": [each.to_json() for each in done], "overrides": list(applied.overrides)}
    if arguments.json:
        diff = {str(change.path): change.lines() for change in changes}
        print(json.dumps({**content, "changes": diff, "dry_run": arguments.dry_run}, indent=2))
        return 0
    if not changes:
        print(f"The config files are those of {applied.run_id} already.")
    for each in done:
        print(
            f"{each.path} is back to what it was in {applied.run_id}" + (f"; before: {each.backup}" * bool(each.backup))
        )
    if applied.overrides:
        print(f"That run also had --set {' --set '.join(applied.overrides)}, which is in no file.")
    return 0


def _check_folder(runs: str) -> None:
    from tfvolta.errors import EvidenceError, Problem
    from tfvolta.evidence.reading import DEFAULT_DIRECTORY

    if runs != DEFAULT_DIRECTORY and not Path(runs).expanduser().is_dir():
        problem = Problem("--runs", "a folder of runs", runs, fix="give the folder that run.directory names")
        raise EvidenceError("There is no such folder of runs.", [problem])


def _json(entry: Entry, in_use: bool) -> dict[str, Any]:
    evidence, applied = entry.evidence, entry.applied
    facts = evidence.facts
    return {
        "run": entry.run_id,
        "folder": str(entry.folder),
        "started": evidence.started,
        "status": evidence.status,
        "in_use": in_use,
        "tripped": list(entry.tripped),
        "script": entry.script,
        "arguments": list(entry.arguments),
        "config": None if applied is None else applied.reference,
        "overrides": [] if applied is None else list(applied.overrides),
        "commit": None if applied is None or applied.commit is None else applied.commit.model_dump(mode="json"),
        "sources": {} if applied is None else applied.sources,
        "host": evidence.host,
        "machine": "" if applied is None else applied.machine,
        "gpus": [gpu.name for gpu in facts.gpus] if facts else [],
        "stack": evidence.stack,
        "versions": evidence.versions,
        "figures": entry.figures.to_json(),
    }


def _print_list(history: History, in_use: frozenset[str], runs: str) -> None:
    from rich.text import Text

    from tfvolta.report.style import make_console, new_table

    if not history.entries:
        print(f"No run in {runs} yet. Make one: tfvolta run --config FILE train.py")
        return
    console = make_console()
    rows = [_cells(entry, entry.run_id in in_use) for entry in history.entries]
    shown = [number for number in range(len(_COLUMNS)) if any(row[number] for row in rows)]
    table = new_table(*(_COLUMNS[number] for number in shown))
    for row in rows:
        style = "bold" if row[0].startswith("*") else ""
        table.add_row(*(Text(row[number] or "-", style=style) for number in shown))
    console.print(table)
    console.print()
    console.print(
        Text("ex/s: examples a second; ms: a step, median; MiB: device memory at its peak;\ncommit+: with changes.")
    )
    if in_use:
        console.print(Text("* its config files are on disk as they were then"))


def _cells(entry: Entry, in_use: bool) -> tuple[str, ...]:
    """The row of an entry; empty where it has no such figure."""
    figures = entry.figures
    commit = entry.applied.commit if entry.applied else None
    return (
        f"{'*' if in_use else ' '} {entry.run_id}",
        entry.config,
        "tripped" if entry.tripped else entry.evidence.status,
        "" if figures.examples_per_second is None else f"{figures.examples_per_second:,.4g}",
        "" if figures.step_seconds is None else f"{1e3 * figures.step_seconds:.3g}",
        "" if figures.peak_bytes is None else f"{figures.peak_bytes / 2**20:,.0f}",
        "" if figures.loss is None else f"{figures.loss:.4g}",
        "" if commit is None else commit.id[:7] + ("+" if commit.dirty else ""),
    )


def _print_damaged(damaged: Sequence[Problem]) -> None:
    if damaged:
        print(f"\n{len(damaged)} of the files cannot be read and are passed over:", file=sys.stderr)
    for problem in damaged:
        print(str(problem), file=sys.stderr)


def _print_diff(found: Sequence[Difference], a: str, b: str) -> None:
    from rich.text import Text

    from tfvolta.config.scalars import write_flow
    from tfvolta.report.style import make_console, new_table

    if not found:
        print("Nothing differs.")
        return
    table = new_table("", a, b)
    for each in found:
        cells = ((each.a, each.origin_a), (each.b, each.origin_b))
        table.add_row(Text(each.key), *(Text(f"{write_flow(value)} ({origin})") for value, origin in cells))
    make_console().print(table)


def _print_changes(changes: Sequence[Change]) -> None:
    for change in changes:
        print("\n".join(change.lines()), end="\n\n")
