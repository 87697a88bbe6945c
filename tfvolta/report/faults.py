"""What went wrong in a run, in a line each: what training survived as well as what ended it."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from tfvolta.evidence.schema import Evidence
from tfvolta.outcome import Status
from tfvolta.report.words import shown


def faults(evidence: Evidence, warned: bool = True) -> list[str]:
    """What a reader should know to have gone otherwise than asked, each once.

    Args:
        evidence: Of the run.
        warned: Whether the run's warnings are among them.
    """
    found = [*_settings(evidence), *_skipped(evidence.measurements.get("loss_scale"))]
    found += [
        *_compiled(evidence.measurements.get("compilations")),
        *_gradients(evidence.measurements.get("gradients")),
    ]
    found += list(evidence.warnings) if warned else []
    if evidence.error is not None:
        lines = evidence.error.message.strip().splitlines()
        found.append(f"ended by {evidence.error.type}: {lines[0] if lines else 'no message'}")
    known = [] if warned else list(evidence.warnings)
    return [text for text in dict.fromkeys(found) if text not in known]


def _settings(evidence: Evidence) -> Iterator[str]:
    words = {Status.LATE: "too late", Status.NO_EFFECT: "without effect", Status.UNVERIFIABLE: "not verifiable"}
    for name, outcome in evidence.outcomes.items():
        if outcome.status in words:
            yield f"{name} {words[outcome.status]}: {outcome.message}"


def _skipped(seen: Any) -> Iterator[str]:
    if not isinstance(seen, Mapping) or not seen.get("skipped"):
        return
    scale = "" if seen.get("scale") is None else f"; the loss scale is {shown(seen['scale'])} at the end"
    yield f"{seen['skipped']} of {seen.get('attempted')} steps skipped: their gradients were not finite{scale}"


def _compiled(seen: Any) -> Iterator[str]:
    if not isinstance(seen, Mapping):
        return
    yield from (str(alarm) for alarm in _list(seen.get("alarms")))
    entries = [
        each for each in _list(seen.get("entries")) if isinstance(each, Mapping) and each.get("function") == "train"
    ]
    for word, what in (("compiled", "XLA compiled"), ("traced", "TensorFlow traced")):
        again = [each for each in entries if each.get(word)][1:]
        if again:
            seconds = sum(each["seconds"] for each in again if isinstance(each.get("seconds"), (int, float)))
            times = "once" if len(again) == 1 else f"{len(again)} times"
            yield f"{what} the train step {times} more after the first, in calls of {shown(seconds)} s"


def _gradients(seen: Any) -> Iterator[str]:
    if isinstance(seen, Mapping) and seen.get("non_finite"):
        yield f"{seen['non_finite']} gradient values were not finite in the {seen.get('samples')} steps looked at"


def _list(value: Any) -> list[Any]:
    """A list of evidence, or an empty one where a file was changed by hand."""
    return value if isinstance(value, list) else []
