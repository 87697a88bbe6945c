"""What a run's evidence says about its step, for estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional

from tfvolta.errors import EvidenceError, Problem
from tfvolta.evidence.reading import locate, read

if TYPE_CHECKING:
    from tfvolta.evidence.schema import Evidence
    from tfvolta.facts.schema import Facts


class RunFigures(NamedTuple):
    """Figures of one run.

    Attributes:
        run_id: Of the run.
        facts: Its machine; None where it was not recorded.
        replicas: GPUs that trained together.
        step_ms: Median of its steps.
        batch: Examples of one GPU's step; None where they were not counted.
        gradient_bytes: Bytes of all gradients as float32; None where nothing was reduced.
    """

    run_id: str
    facts: Optional[Facts]
    replicas: int
    step_ms: float
    batch: Optional[float]
    gradient_bytes: Optional[int]


def read_figures(run: str, directory: str) -> RunFigures:
    """Reads them.

    Args:
        run: Folder of a run, its evidence file, or a run id.
        directory: Folder of runs.

    Raises:
        EvidenceError: There is no such run, or it measured no steps.
    """
    evidence = read(locate(run, directory))
    throughput = evidence.measurements.get("throughput")
    measured: dict[str, Any] = throughput if isinstance(throughput, dict) else {}
    seconds = _number(measured.get("step_seconds_median"))
    if seconds is None or measured.get("step_times") == "dispatch":
        why = "the steps of this run were not timed" if seconds is None else "its steps were not waited for one by one"
        fix = "train with monitor.throughput: true, or give --step-ms"
        raise EvidenceError(
            "The run says nothing about its step.",
            [Problem(f"run {evidence.run_id}", "measurements.throughput.step_seconds_median", "none", why, fix)],
        )
    batch = _batch(measured)
    replicas = next((int(count) for count in _observed(evidence, "replicas")), 1)
    return RunFigures(
        run_id=evidence.run_id,
        facts=evidence.facts,
        replicas=max(1, replicas),
        step_ms=1e3 * seconds,
        batch=None if batch is None else batch / max(1, replicas),
        gradient_bytes=next((int(count) for count in _observed(evidence, "gradient_bytes") if count > 0), None),
    )


def _batch(measured: dict[str, Any]) -> Optional[float]:
    """Examples of a step, from the last epoch in which they were counted."""
    epochs = measured.get("epochs")
    for epoch in reversed(epochs if isinstance(epochs, list) else []):
        examples, steps = _number(epoch.get("examples")), _number(epoch.get("steps"))
        if examples is not None and steps is not None:
            return examples / steps
    return None


def _observed(evidence: Evidence, name: str) -> Iterator[float]:
    """A figure that settings observed, wherever one did."""
    for outcome in evidence.outcomes.values():
        value = _number(outcome.observed.get(name))
        if value is not None:
            yield value


def _number(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None
