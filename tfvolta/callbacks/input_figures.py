"""From what was clocked of steps and data to the share of the step time that is spent waiting for input."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

# A share from which the data are what training waits for; below it, noise and the handing over of batches are left.
INPUT_BOUND = 0.2
# Batches that are made so much faster than they are used, and such waits, are what handing over a batch costs.
_AMPLE = 0.1
_HANDING_OVER_SECONDS = 0.0005
_AUTOTUNE = "tf.data.AUTOTUNE"


@dataclasses.dataclass(frozen=True)
class InputFigures:
    """What was measured of one fit.

    Attributes:
        step_seconds: A step as it is, waiting included; validation, tracing and the first step of an epoch are not.
        waited_seconds: Of these, spent by whoever fetches batches until they came.
        held_step_seconds: A step on batches that were in memory already; None where none could be held.
        data_seconds: What one batch takes when nothing but data are made; None likewise.
        steps: Steps that ``step_seconds`` is the mean of.
        held_steps: Steps that ``held_step_seconds`` is the mean of.
        overlaps: Whether something may compute while batches are waited for, so that not all of the wait is lost.
    """

    step_seconds: float
    waited_seconds: float
    steps: int
    held_step_seconds: Optional[float] = None
    data_seconds: Optional[float] = None
    held_steps: int = 0
    overlaps: bool = True

    @property
    def share(self) -> float:
        """Share of the step time that would not be there if data cost nothing, from 0 to 1.

        Where nothing computes meanwhile it is the time for which batches were waited for. Otherwise a step cannot lose
        more to its data than that, nor more than it takes longer than one without waiting.
        """
        if self.step_seconds <= 0:
            return 0.0
        share = self.waited_seconds / self.step_seconds
        if self.overlaps and self.held_step_seconds is not None:
            share = min(share, 1.0 - self.held_step_seconds / self.step_seconds)
        return min(1.0, max(0.0, share))

    @property
    def bound(self) -> str:
        """``input`` or ``compute``; the latter also where the wait is what the handing over of a batch costs."""
        ample = self.data_seconds is not None and self.data_seconds < _AMPLE * self.step_seconds
        handed = ample or self.waited_seconds < _HANDING_OVER_SECONDS
        return "input" if self.share >= INPUT_BOUND and not handed else "compute"

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return {"bound": self.bound, "share": self.share, **dataclasses.asdict(self)}

    def sentence(self) -> str:
        """The diagnosis in words."""
        compared = ""
        if self.held_step_seconds is not None:
            compared = f", {_seconds(self.held_step_seconds)} on batches that are in memory already"
        if self.data_seconds is not None:
            compared += f"; a batch of data alone takes {_seconds(self.data_seconds)}"
        said = "Input-bound" if self.bound == "input" else "Compute-bound"
        share = f"{100 * self.share:.0f} % of the step time is spent waiting for data"
        return f"{said}: {share} (a step takes {_seconds(self.step_seconds)}{compared})."


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.3g} ms"


def remedy(pipeline: Any, source: str, figures: InputFigures) -> str:
    """What would help first, as a line to write; empty where that cannot be seen.

    Args:
        pipeline: ``tfvolta.bridge.pipeline.Pipeline`` of the data.
        source: What fit was given: ``sequence``, ``generator``, or something else.
        figures: What was measured.
    """
    if source == "sequence":
        return (
            "let several workers make batches: workers=4, use_multiprocessing=True (of the PyDataset in Keras 3, of"
            " fit in Keras 2)"
        )
    if source == "generator":
        return _of_generator(cached=False)
    computed, made = figures.held_step_seconds or 0.0, figures.data_seconds or figures.waited_seconds
    hides = min(computed, made) >= 0.25 * figures.step_seconds
    if not pipeline.prefetched and (hides or not (pipeline.serial_maps or pipeline.generator)):
        return f"fetch while the device computes: dataset.prefetch({_AUTOTUNE}) as the last transformation"
    if pipeline.generator:
        return _of_generator(pipeline.cached)
    if pipeline.serial_maps:
        return (
            f"prepare several elements at once: dataset.map(..., num_parallel_calls={_AUTOTUNE}){_of_python(pipeline)}"
        )
    if not pipeline.cached and not pipeline.random:
        return "keep what was prepared: dataset.cache() before what is random, or dataset.cache(file)"
    return ""


def _of_python(pipeline: Any) -> str:
    if not pipeline.python_maps:
        return ""
    return ", in TensorFlow's operations, for Python code in it computes one call at a time"


def _of_generator(cached: bool) -> str:
    kept = "" if cached else "; dataset.cache() keeps what does not change from epoch to epoch"
    return (
        "a Python generator makes one batch after another: let it give indices or names only and do the work in"
        f" dataset.map(..., num_parallel_calls={_AUTOTUNE}){kept}"
    )
