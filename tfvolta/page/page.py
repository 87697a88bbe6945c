"""The whole page."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tfvolta.page.bench import bench, bench_sentence, comparisons, ladder, ladder_sentence
from tfvolta.page.markup import Content, Markup, element, joined, paragraph
from tfvolta.page.run import run_section, tiles, tone
from tfvolta.page.runs_compared import compared, sentence
from tfvolta.page.scaling import scaling
from tfvolta.page.search import TONES, search
from tfvolta.page.style import stylesheet
from tfvolta.page.subject import Subjects
from tfvolta.page.svg import can_draw
from tfvolta.page.words import rate_text
from tfvolta.report.verdict import verdict

# Nothing is loaded and nothing runs: a page that somebody sends on can do no more than be read.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
NO_CHARTS = "Charts are missing, since matplotlib is not installed here; their figures stand in the tables. "
_FIX = "pip install 'tfvolta[report]'"


def verdicts(subjects: Subjects) -> list[tuple[str, str]]:
    """What is to be said first, in a sentence each, with its tone; what has measured more stands first."""
    said = [(TONES[result.verdict], result.sentence) for _, result in subjects.searches]
    for _, result in subjects.benches:
        found = comparisons(result)
        said.append(("good" if found and all(one.wins for one in found) else "doubt", bench_sentence(result)))
    said += [("doubt", ladder_sentence(content)) for _, content in subjects.ladders]
    runs = [evidence for _, evidence in subjects.runs]
    if len(runs) == 1:
        said.append((tone(runs[0]), verdict(runs[0]) + _rate(runs[0].measurements.get("throughput"))))
    elif runs:
        ended = [run.status for run in runs]
        counts = ", ".join(f"{ended.count(status)} {status}" for status in dict.fromkeys(ended))
        worst = "bad" if "bad" in map(tone, runs) else "doubt"
        said.append((worst, f"{len(runs)} runs: {counts}. {sentence(runs)}"))
    return said or [("doubt", "An estimate alone: nothing was measured.")]


def _rate(seen: object) -> str:
    rate = seen.get("examples_per_second") if isinstance(seen, dict) else None
    return f" It trained at {rate_text(rate)} examples a second." if isinstance(rate, (int, float)) else ""


def make_page(subjects: Subjects, made: str, version: str) -> str:
    """The page as text.

    Args:
        subjects: What it is about.
        made: When, for the footer.
        version: Of tfvolta.
    """
    sections = _sections(subjects)
    title = f"Report: {_name(subjects)}"
    said = [element("div", paragraph(text), class_=f"verdict {kind}") for kind, text in verdicts(subjects)]
    lone = tiles(subjects.runs[0][1]) if len(subjects.runs) == 1 else Markup("")
    links = [element("li", element("a", name, href=f"#{key}")) for key, name, _ in sections]
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(stylesheet())),
    ]
    body = [
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("header", element("h1", title), *said, lone, _charts_missing()),
        element("nav", element("ul", *links), aria_label="Contents"),
        element("main", *(section for _, _, section in sections), id="content"),
        element(
            "footer", paragraph(f"Made by tfvolta {version} on {made}. It opens without a network and runs no script.")
        ),
    ]
    page = element("html", element("head", joined(head)), element("body", joined(body)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _charts_missing() -> Markup:
    return Markup("") if can_draw() else paragraph(NO_CHARTS, element("code", _FIX), " draws them.", class_="note")


def _sections(subjects: Subjects) -> list[tuple[str, str, Markup]]:
    """Id, name and content of each section, in order."""
    found = []
    runs = [evidence for _, evidence in subjects.runs]
    gained: list[Content] = [search(result, f"search-{n}") for n, (_, result) in enumerate(subjects.searches)]
    gained += [bench(result, f"bench-{n}") for n, (_, result) in enumerate(subjects.benches)]
    gained += [ladder(content, f"ladder-{n}") for n, (_, content) in enumerate(subjects.ladders)]
    gained += [compared(runs)] if len(runs) > 1 else []
    if gained:
        found.append(("gained", "Before and after", _section("gained", "Before and after", gained)))
    for place, (path, evidence) in enumerate(subjects.runs):
        name = f"run-{place}"
        found.append((name, f"Run {evidence.run_id}", run_section(path, evidence, name, with_tiles=len(runs) > 1)))
    estimates: list[Content] = [
        scaling(estimate, f"scaling-{place}", source) for place, (source, estimate) in enumerate(subjects.estimates)
    ]
    if not estimates:
        estimates = [paragraph(_no_estimate(), class_="note")]
    found.append(("scaling", "Scaling prediction", _section("scaling", "Scaling prediction", estimates)))
    return found


def _no_estimate() -> str:
    return (
        "There is none: it takes a GPU's step time and the size of the gradients. tfvolta estimate scaling --run RUN "
        "--model NAME --json > scaling.json makes one, and scaling.json given to this report is shown here."
    )


def _section(name: str, title: str, content: list[Content]) -> Markup:
    return element("section", element("h2", title, id=name), *content, aria_labelledby=name)


def _name(subjects: Subjects) -> str:
    """What the page is about, in some words."""
    names = [Path(evidence.script or evidence.run_id).name for _, evidence in subjects.runs]
    names += [Path(result.script).name for _, result in subjects.searches]
    names += [result.model for _, result in subjects.benches]
    names += [Path(str(content.get("script", "ladder"))).name for _, content in subjects.ladders]
    names += ["scaling"] if not names else []
    return ", ".join(list(dict.fromkeys(names))[:4])


def write_page(path: Path, page: str) -> int:
    """Writes the page; the file is whole at every moment.

    Returns:
        Its size in bytes.

    Raises:
        OSError: It cannot be written.
    """
    content = page.encode("utf-8")
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(2)}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return len(content)
