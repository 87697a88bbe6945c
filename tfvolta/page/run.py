"""One run: what went wrong, its settings, what it measured, and where it ran."""

from __future__ import annotations

import shlex
from pathlib import Path

from tfvolta.evidence.schema import Evidence
from tfvolta.outcome import Status
from tfvolta.page.markup import Content, Markup, bullets, element, fold, joined, pairs, paragraph
from tfvolta.page.measured import measurements
from tfvolta.page.settings import problems, settings
from tfvolta.page.words import figure, mapping, mark, mebibytes, milliseconds, rate_text
from tfvolta.report.faults import faults
from tfvolta.report.verdict import verdict
from tfvolta.report.workers import worker_lines


def tone(evidence: Evidence) -> str:
    """How a run ended: good, doubt or bad."""
    if evidence.status in ("failed", "refused"):
        return "bad"
    wrong = (Status.LATE, Status.NO_EFFECT)
    clean = evidence.status == "completed" and not any(each.status in wrong for each in evidence.outcomes.values())
    return "good" if clean else "doubt"


def tiles(evidence: Evidence) -> Markup:
    """The figures that a reader looks at first."""
    seen = evidence.measurements
    times, memory = mapping(seen.get("throughput")), mapping(seen.get("memory"))
    scale = mapping(seen.get("loss_scale"))
    rate, step = figure(times.get("examples_per_second")), figure(times.get("step_seconds_median"))
    peaks = [
        size for size in (figure(value) for value in mapping(memory.get("peak_bytes")).values()) if size is not None
    ]
    statuses = [outcome.status for outcome in evidence.outcomes.values()]
    asked = [status for status in statuses if status is not Status.NOT_APPLICABLE]
    found: list[tuple[str, Content]] = []
    if rate is not None:
        found.append(("Throughput", _tile(rate_text(rate), "examples a second")))
    if step is not None:
        found.append(("Step time", _tile(milliseconds(step), f"median of {times.get('n')}")))
    if peaks:
        found.append(("GPU memory", _tile(mebibytes(max(peaks)), "highest peak")))
    if asked:
        rest = len(statuses) - len(asked)
        said = "applied and verified" + (f"; {rest} not applicable here" if rest else "")
        found.append(("Settings", _tile(f"{asked.count(Status.APPLIED)} of {len(asked)}", said)))
    if scale.get("attempted"):
        skipped = scale.get("skipped")
        found.append(
            ("Skipped steps", _tile("not counted" if skipped is None else str(skipped), f"of {scale['attempted']}"))
        )
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in found]
    return element("dl", *rows, class_="tiles") if rows else Markup("")


def _tile(value: str, said: str) -> Markup:
    return joined([element("span", value), element("small", said)], "")


def run_section(path: Path, evidence: Evidence, name: str, with_tiles: bool) -> Markup:
    """One run.

    Args:
        path: Its evidence.
        evidence: What it holds.
        name: Unique in the page, for ids.
        with_tiles: Whether its figures stand here; of a lone run they stand at the top.
    """
    parts: list[Content] = [element("h2", f"Run {evidence.run_id}", id=name)]
    if with_tiles:
        parts += [paragraph(mark(evidence.status, tone(evidence)), f" {verdict(evidence)}"), tiles(evidence)]
    parts += [
        _wrong(evidence),
        problems("Conflicts", evidence.conflicts),
        problems("Contradictions", evidence.contradictions),
        element("h3", "Settings"),
        paragraph("Each outcome folds open and shut; every setting ends in one, with its reason.", class_="note"),
        settings(evidence),
        measurements(evidence, name),
        _workers(path),
        _about(path, evidence),
    ]
    return element("section", joined(parts), aria_labelledby=name)


def _wrong(evidence: Evidence) -> Markup:
    found = faults(evidence)
    parts: list[Content] = [element("h3", "Warnings and what went wrong")]
    parts.append(bullets(found) if found else paragraph(mark("Nothing was seen to go wrong.", "good")))
    error = evidence.error
    if error is not None:
        said = [problem for problem in error.problems if problem not in evidence.conflicts]
        parts.append(problems("Error", tuple(said)))
        if error.message:
            parts.append(fold(f"The whole message of {error.type}", element("pre", error.message)))
        if error.traceback:
            parts.append(fold("Traceback", element("pre", error.traceback)))
    return joined(parts)


def _workers(path: Path) -> Markup:
    lines = worker_lines(path)
    if not lines:
        return Markup("")
    rows = [
        (line.name, f"{line.verdict} The launcher: {line.ended}." if line.ended else line.verdict) for line in lines
    ]
    return joined([element("h3", "Other workers"), pairs(rows)])


def _about(path: Path, evidence: Evidence) -> Markup:
    facts = evidence.facts
    rows: list[tuple[Content, Content]] = [("started", evidence.started), ("ended", evidence.ended or "not known")]
    if evidence.command:
        rows.append(("command", element("code", shlex.join(evidence.command))))
    rows += [("script", element("code", evidence.script))] if evidence.script else []
    if facts is not None:
        names = [gpu.name for gpu in facts.gpus]
        gpus = ", ".join(f"{names.count(each)}x {each}" for each in dict.fromkeys(names)) or "no GPU"
        rows.append(("machine", f"{facts.host or evidence.host or 'unnamed'}: {gpus}, {facts.cpu.cores} CPU cores"))
        rows.append(("driver", facts.driver)) if facts.driver else None
    rows.append(("stack", evidence.stack or "not known"))
    if evidence.worker is not None:
        rows.append(("process", f"{evidence.worker.name} of {evidence.worker.workers}"))
    rows.append(("evidence", element("code", str(path))))
    versions = fold(f"Versions: {len(evidence.versions)} packages", pairs(evidence.versions.items()))
    return joined([element("h3", "Where and how"), pairs(rows), versions if evidence.versions else ""])
