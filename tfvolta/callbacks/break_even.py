"""After how many steps a compilation has earned its time back; from times that were measured, or not at all."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Optional

_LEAST_STEPS = 5


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Mean time of a step.

    Attributes:
        seconds: The mean, by the wall clock.
        error: Its standard error, seconds.
        source: Who measured it, such as ``this run``.
    """

    seconds: float
    error: float
    source: str


def step_time(throughput: Mapping[str, Any], source: str) -> Optional[StepTime]:
    """The time of a step from the summary of ``Throughput``; None where too few were timed.

    The error is that of a median of normally distributed times, 1.2533 times that of a mean.

    Args:
        throughput: ``Throughput.summary()``.
        source: Who measured it.
    """
    steps, seconds = throughput.get("timed_steps") or 0, throughput.get("timed_seconds") or 0.0
    spread, number = throughput.get("step_seconds_mad"), throughput.get("n") or 0
    if steps < _LEAST_STEPS or number < _LEAST_STEPS or seconds <= 0 or spread is None:
        return None
    return StepTime(seconds / steps, 1.2533 * spread / math.sqrt(number), source)


def break_even(
    compile_seconds: float, compiled: Optional[StepTime], plain: Optional[StepTime], steps: Optional[int]
) -> dict[str, Any]:
    """Compile seconds against seconds saved in a step, as JSON values with a sentence under ``text``.

    Args:
        compile_seconds: What compiling took beyond the steps themselves.
        compiled: A compiled step.
        plain: A step without XLA.
        steps: Steps of the run; None where not known.
    """
    if compiled is None:
        return {"text": "not known: too few steps were timed"}
    if plain is None:
        return {"text": "not known: no run of this model without XLA is in the run directory; make one: xla.jit=off"}
    saved, error = plain.seconds - compiled.seconds, 2.0 * math.hypot(plain.error, compiled.error)
    measured = (
        f"a step takes {_ms(compiled)} compiled and {_ms(plain)} without XLA ({plain.source}), compiling took "
        f"{compile_seconds:.1f} s"
    )
    found: dict[str, Any] = {
        "compile_seconds": compile_seconds,
        "saved_seconds_per_step": saved,
        "error_seconds_per_step": error,
        "source": plain.source,
        "steps": None,
        "steps_planned": steps,
    }
    if saved <= error:
        how = "no faster" if saved > -error else "slower"
        return {**found, "text": f"does not pay off: the compiled step is {how}; {measured}"}
    needed = compile_seconds / saved
    low, high = compile_seconds / (saved + error), compile_seconds / (saved - error)
    has = "" if steps is None else f", this run has {steps}"
    text = f"pays off after {needed:.0f} steps ({low:.0f} to {high:.0f}){has}; {measured}"
    return {**found, "steps": needed, "steps_low": low, "steps_high": high, "text": text}


def _ms(time: StepTime) -> str:
    return f"{1000 * time.seconds:.3g} ms"
