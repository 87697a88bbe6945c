"""``tfvolta report``: what a run did, what differs between two runs, or a page about runs, searches and benches."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("report", help="show a run's evidence, or compare two runs", description=__doc__)
    runs = "folder, evidence file or run id; the last run when left out; two to compare"
    parser.add_argument("runs", nargs="*", metavar="RUN", help=runs)
    parser.add_argument("--directory", metavar="DIR", default="runs", help="folder of runs (default: runs)")
    page = "write one page that needs no network, beside the run or to PATH; also of several runs, searches and benches"
    parser.add_argument("--html", nargs="?", const="", metavar="PATH", help=page)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints one run, or what differs between two; or writes a page.

    Raises:
        EvidenceError: There is no such run, or it cannot be read.
        ConfigError: The page cannot be written.
    """
    if arguments.html is not None:
        from tfvolta.cli import report_page

        return report_page.run(arguments)
    from tfvolta.errors import EvidenceError, Problem
    from tfvolta.evidence.reading import latest, locate, read

    if len(arguments.runs) > 2:
        problem = Problem(
            "runs",
            "one run, or two to compare",
            f"{len(arguments.runs)}",
            fix="tfvolta report A B; or --html, which takes any number",
        )
        raise EvidenceError("Too many runs.", [problem])
    directory = arguments.directory
    paths = [locate(name, directory) for name in arguments.runs] or [latest(directory)]
    runs = [read(path) for path in paths]
    if len(runs) == 2:
        return _compare(runs[0], runs[1], arguments.json)
    return _show(runs[0], str(paths[0]), arguments.json)


def _show(evidence: Any, path: str, as_json: bool) -> int:
    from tfvolta.report.faults import faults
    from tfvolta.report.terminal import print_report
    from tfvolta.report.verdict import verdict
    from tfvolta.report.workers import worker_lines

    if as_json:
        content = evidence.model_dump(mode="json")
        workers = [line.to_json() for line in worker_lines(path)]
        said = {"verdict": verdict(evidence), "faults": faults(evidence), "path": path, "workers": workers}
        print(json.dumps({**said, "evidence": content}, indent=2))
    else:
        print_report(evidence, path)
    return 0


def _compare(a: Any, b: Any, as_json: bool) -> int:
    from tfvolta.report.comparison import compare
    from tfvolta.report.differences import print_comparison

    comparison = compare(a, b)
    if as_json:
        print(json.dumps(comparison.to_json(), indent=2))
    else:
        print_comparison(comparison)
    return 0
