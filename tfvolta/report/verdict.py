"""One sentence that says how a run ended, and how its settings did."""

from __future__ import annotations

import os
import platform

from tfvolta.evidence.clock import seconds_between
from tfvolta.evidence.schema import Evidence
from tfvolta.outcome import Status

WORDS = {
    Status.PENDING: "not reached",
    Status.APPLIED: "applied",
    Status.NO_EFFECT: "no effect",
    Status.LATE: "late",
    Status.NOT_APPLICABLE: "not applicable",
    Status.UNVERIFIABLE: "unverifiable",
}
_PHRASES = {
    Status.APPLIED: "applied and verified",
    Status.NO_EFFECT: "without effect",
    Status.LATE: "too late",
    Status.UNVERIFIABLE: "applied but not verifiable",
    Status.NOT_APPLICABLE: "not applicable here",
    Status.PENDING: "not reached",
}


def is_alive(evidence: Evidence) -> bool:
    """Whether the process of a run that says ``running`` is still there; false on another machine."""
    if evidence.status != "running" or evidence.pid is None or evidence.host != platform.node():
        return False
    try:
        os.kill(evidence.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it exists and is another user's
    return True


def settings(evidence: Evidence) -> str:
    """How the settings ended, such as ``5 settings: 4 applied and verified, 1 too late``."""
    if not evidence.outcomes:
        return "no settings"
    statuses = [outcome.status for outcome in evidence.outcomes.values()]
    counts = [f"{statuses.count(status)} {phrase}" for status, phrase in _PHRASES.items() if status in statuses]
    return f"{len(statuses)} setting{'s' * (len(statuses) > 1)}: {', '.join(counts)}"


def duration(evidence: Evidence) -> str:
    """How long a run took, in words; empty while that is unknown."""
    end = evidence.ended or evidence.updated
    if not end:
        return ""
    try:
        seconds = seconds_between(evidence.started, end)
    except (TypeError, ValueError):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if seconds < 120 else f"{minutes // 60} h {minutes % 60} min {rest} s"


def verdict(evidence: Evidence) -> str:
    """The report in a sentence."""
    took = f" after {duration(evidence)}" if duration(evidence) else ""
    reason = f" by {evidence.error.type}" if evidence.error else ""
    if evidence.status == "completed":
        start = f"Completed{took}"
    elif evidence.status == "failed":
        start = f"Failed{took}{reason}"
    elif evidence.status == "interrupted":
        start = f"Interrupted{took}{reason}"
    elif evidence.status == "refused":
        count = len(evidence.error.problems if evidence.error else evidence.conflicts) or len(evidence.conflicts)
        start = f"Refused before training: {count} problem{'s' * (count != 1)}"
    elif is_alive(evidence):
        start = f"Still running (process {evidence.pid})"
    else:
        later = f" later than {duration(evidence)} into the run" if took else ""
        start = f"Killed, or running on another machine: nothing was written{later}"
    return f"{start}; {settings(evidence)}."
