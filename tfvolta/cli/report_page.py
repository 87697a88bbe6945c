"""``tfvolta report --html``: a page in place of text."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Optional

from tfvolta.errors import ConfigError, EvidenceError, FactsError, Problem

if TYPE_CHECKING:
    from tfvolta.evidence.schema import Evidence
    from tfvolta.page.subject import Subjects

FILE_NAME = "report.html"


def run(arguments: argparse.Namespace) -> int:
    """Writes the page.

    Raises:
        EvidenceError: Something given cannot be read.
        ConfigError: The page cannot be written.
    """
    import tfvolta
    from tfvolta.cli.output_file import cannot_write, check_output
    from tfvolta.evidence.clock import now
    from tfvolta.page.page import NO_CHARTS, make_page, verdicts, write_page
    from tfvolta.page.subject import read_subjects
    from tfvolta.page.svg import can_draw

    _check_name(arguments.html)
    subjects = read_subjects(arguments.runs, arguments.directory)
    path = Path(arguments.html).expanduser() if arguments.html else _beside(subjects)
    check_output("--html", path)
    subjects = _with_estimates(subjects)
    page = make_page(subjects, now(), tfvolta.__version__)
    try:
        size = write_page(path, page)
    except OSError as error:
        raise cannot_write("--html", path, error) from error
    said = [text for _, text in verdicts(subjects)]
    if arguments.json:
        print(json.dumps({"path": str(path), "bytes": size, "charts": can_draw(), "verdicts": said}, indent=2))
    else:
        print("\n".join([*said, *([] if can_draw() else [NO_CHARTS.strip()]), f"{path} ({size / 1e3:,.0f} kB)"]))
    return 0


def _check_name(name: str) -> None:
    """A run's name behind --html is one that was meant for the report: it must not become a file."""
    if name and Path(name).suffix.lower() not in (".html", ".htm"):
        problem = Problem(
            f"--html {name}",
            "the file to write, whose name ends in .html",
            name,
            "what follows --html is where the page goes",
            f"name runs before it: tfvolta report {name} --html",
        )
        raise ConfigError("The page has no usable name.", [problem])


def _beside(subjects: Subjects) -> Path:
    """Beside the evidence of the one thing that is reported; of several, here."""
    files = subjects.files
    return files[0].parent / FILE_NAME if len(files) == 1 else Path(FILE_NAME)


def _with_estimates(subjects: Subjects) -> Subjects:
    """With a prediction for each run whose evidence has what one takes: GPUs, a step time, and bytes of gradients."""
    made = [(f"the evidence of run {run.run_id}", _estimate(path, run)) for path, run in subjects.runs]
    known = tuple((source, estimate) for source, estimate in made if estimate is not None)
    return dataclasses.replace(subjects, estimates=(*subjects.estimates, *known))


def _estimate(path: Path, evidence: Evidence) -> Optional[Mapping[str, Any]]:
    from tfvolta.cli.estimate_scaling import add_parser
    from tfvolta.cli.scaling_request import read_request

    gpus = 0 if evidence.facts is None else len(evidence.facts.gpus)
    if gpus < 2:
        return None
    counts = [str(count) for count in (1, 2, 4, 8, 16) if count <= gpus]
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    words = ["scaling", "--run", str(path), "--gpus", ",".join(counts)]
    try:
        return read_request(parser.parse_args(words)).to_json()
    except (ConfigError, EvidenceError, FactsError):  # something that it takes is not in the evidence
        return None
