"""What was requested, planned, applied and verified, in a fold for each outcome."""

from __future__ import annotations

from typing import Optional

from tfvolta.evidence.schema import Evidence, OutcomeRecord, PlanStep, ProblemRecord
from tfvolta.outcome import Status
from tfvolta.page.markup import Markup, element, fold, joined, pairs, paragraph, prose_table
from tfvolta.page.words import TONES, status_mark
from tfvolta.report.words import shown

_ORDER = (
    (Status.LATE, "Too late"),
    (Status.NO_EFFECT, "Without effect"),
    (Status.PENDING, "Not reached"),
    (Status.UNVERIFIABLE, "Applied, not verifiable"),
    (Status.APPLIED, "Applied and verified"),
    (Status.NOT_APPLICABLE, "Not applicable on this machine"),
)
_COLUMNS = ("Setting", "Requested", "Planned", "Applied", "Seen")


def settings(evidence: Evidence) -> Markup:
    """All settings of a run; those that did not take are open."""
    steps = {step.knob: step for step in evidence.plan}
    names = list(dict.fromkeys([*steps, *evidence.outcomes]))
    if not names:
        return paragraph("This run has no settings.", class_="note")
    parts = []
    for status, title in _ORDER:
        rows = [
            _row(name, steps.get(name), evidence.outcomes.get(name))
            for name in names
            if _status(evidence.outcomes.get(name)) is status
        ]
        if rows:
            head = element("span", f"{title}: {len(rows)}", class_=f"mark {TONES[status]}")
            content = prose_table(f"Settings: {title.lower()}", _COLUMNS, rows)
            parts.append(fold(head, content, opened=TONES[status] in ("bad", "doubt")))
    return joined([*parts, _given(evidence)])


def _status(outcome: Optional[OutcomeRecord]) -> Status:
    return Status.PENDING if outcome is None else outcome.status


def _row(name: str, step: Optional[PlanStep], outcome: Optional[OutcomeRecord]) -> list[str]:
    value = step.value if step is not None else outcome.value if outcome is not None else None
    origin = f" from {step.origin}" if step is not None and step.origin else ""
    planned: Markup = Markup("-")
    if step is not None:
        condition = f" If {step.condition}." if step.condition else ""
        planned = element("span", status_mark(step.status), f" {step.message}{condition}")
    applied = "no"
    if outcome is not None and outcome.applied_at:
        phase = step.phase if step is not None else outcome.phase
        applied = f"in {phase}" if phase else "yes"
    seen = element("span", status_mark(_status(outcome)), f" {outcome.message}" if outcome is not None else "")
    return [
        element("code", name),
        element("span", shown(value), element("span", origin, class_="quiet")),
        planned,
        applied,
        seen,
    ]


def _given(evidence: Evidence) -> Markup:
    """What the config says and where each value is from."""
    rows = [
        (element("code", key), shown(origin))
        for key, origin in evidence.config.provenance.items()
        if origin is not None
    ]
    return fold(f"Where the values of the config are from: {len(rows)}", pairs(rows)) if rows else Markup("")


def problems(title: str, found: tuple[ProblemRecord, ...]) -> Markup:
    """Problems with what was expected, received, why, and the fix."""
    parts = []
    for problem in found:
        said = [(word, getattr(problem, word)) for word in ("expected", "received", "why", "fix")]
        parts.append(
            element("li", element("strong", problem.where), pairs((word, text) for word, text in said if text))
        )
    return joined([element("h3", title), element("ul", *parts)]) if parts else Markup("")
