"""One run of a rung, and what was seen in it."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Union

from tfvolta.errors import EvidenceError
from tfvolta.evidence.reading import read
from tfvolta.evidence.schema import Evidence
from tfvolta.ladder.rung import Rung
from tfvolta.report.faults import faults


@dataclasses.dataclass(frozen=True)
class Setting:
    """How one setting that a rung adds ended.

    Attributes:
        knob: Its name.
        status: One of the outcomes.
        message: What was seen, and why.
    """

    knob: str
    status: str
    message: str


@dataclasses.dataclass(frozen=True)
class RungRun:
    """One run.

    Attributes:
        rung: Name of the rung.
        repeat: From 1.
        seconds: Of the whole process.
        reason: Why it did not end well; empty where it did.
        evidence: Its evidence file; None where the process left none.
        examples_per_second: Of the last fit, without the first steps; None where nothing counts examples.
        step_seconds: Mean of the steps that count.
        step_seconds_median: Their median.
        steps: Of the last fit.
        first_step_seconds: From the call of ``fit`` until the first step was done.
        loss: Of the last epoch; a word where it is not finite.
        peak_bytes: Peak of the GPU with most, or of the process where there is no GPU.
        on_gpu: Which of the two that is.
        settings: What the rung adds, and how that ended.
        faults: What went wrong.
    """

    rung: str
    repeat: int
    seconds: float
    reason: str = ""
    evidence: Optional[str] = None
    examples_per_second: Optional[float] = None
    step_seconds: Optional[float] = None
    step_seconds_median: Optional[float] = None
    steps: Optional[int] = None
    first_step_seconds: Optional[float] = None
    loss: Union[float, str, None] = None
    peak_bytes: Optional[int] = None
    on_gpu: bool = False
    settings: tuple[Setting, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether nothing of what the rung adds applied to this machine, stack and model."""
        return bool(self.settings) and all(each.status == "NOT_APPLICABLE" for each in self.settings)

    def to_json(self) -> dict[str, Any]:
        """The run as JSON values."""
        return dataclasses.asdict(self)


def run_of(rung: Rung, repeat: int, seconds: float, answer: Mapping[str, Any]) -> RungRun:
    """What is known of a run from its process's answer and its evidence.

    Args:
        rung: What was run.
        repeat: From 1.
        seconds: Of the whole process.
        answer: What the process wrote.
    """
    reason, path = str(answer.get("reason") or ""), answer.get("evidence")
    known: dict[str, Any] = {
        "first_step_seconds": answer.get("first_step_seconds"),
        "loss": answer.get("loss"),
        "peak_bytes": answer.get("host_peak_bytes"),
    }
    if path is not None:
        try:
            known.update(_seen(read(path), rung))
        except EvidenceError as error:
            reason = reason or str(error)
    wrong = [reason.splitlines()[0]] if reason else []
    if isinstance(known["loss"], str):
        wrong.append(f"the loss is {known['loss']} at the end")
    known["faults"] = tuple(dict.fromkeys([*known.get("faults", ()), *wrong]))
    return RungRun(rung.name, repeat, seconds, reason, path, **{k: v for k, v in known.items() if v is not None})


def _seen(evidence: Evidence, rung: Rung) -> dict[str, Any]:
    throughput = evidence.measurements.get("throughput") or {}
    peaks = [peak for peak in ((evidence.measurements.get("memory") or {}).get("peak_bytes") or {}).values() if peak]
    steps, seconds = throughput.get("timed_steps"), throughput.get("timed_seconds")
    added = [step.knob for step in evidence.plan if step.keys and step.keys[0].split(".")[0] in rung.added]
    ended = [(name, evidence.outcomes[name]) for name in added if name in evidence.outcomes]
    return {
        "examples_per_second": throughput.get("examples_per_second"),
        "step_seconds": seconds / steps if steps and seconds else None,
        "step_seconds_median": throughput.get("step_seconds_median"),
        "steps": throughput.get("steps"),
        **({"peak_bytes": max(peaks), "on_gpu": True} if peaks else {}),
        "settings": tuple(Setting(name, outcome.status.value, outcome.message) for name, outcome in ended),
        "faults": tuple(faults(evidence)),
    }
