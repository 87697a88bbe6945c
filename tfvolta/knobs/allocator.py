"""The GPU memory allocator."""

from __future__ import annotations

from typing import Any, Mapping

from tfvolta.errors import Problem
from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.phase import Moment

VARIABLE = "TF_GPU_ALLOCATOR"
ASYNC = "cuda_malloc_async"


class Allocator(EnvironmentKnob):
    """Chooses TensorFlow's own pool (``default``) or CUDA's stream-ordered one (``cuda_malloc_async``).

    Binds: when the eager context creates the GPU devices.
    """

    name = "allocator"
    keys = ("devices.allocator",)
    closes_at = Moment.CONTEXT_INITIALIZED
    move_to = (
        "set TF_GPU_ALLOCATOR (or build the strategy from the config) before the first tensor, model or optimizer is"
        " made"
    )
    techniques = ("M5",)
    unverifiable = (
        "TensorFlow says which allocator it made only in its log ('Using CUDA malloc Async allocator for GPU'); "
        "there is no call that returns it."
    )

    def variables(self, value: Any) -> dict[str, str]:
        return {VARIABLE: ASYNC} if value == ASYNC else {}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del config
        if value != ASYNC:
            return "TensorFlow's own pool (BFC), which is what it uses when nothing is set."
        several = (
            " With several GPUs TensorFlow's source warns that this allocator may not work."
            if len(facts.gpus) > 1
            else ""
        )
        return (
            "Memory comes from CUDA's stream-ordered pool instead of TensorFlow's own (BFC): less fragmentation for"
            " changing shapes; needs a driver for CUDA 11.2 or later (11.3 with several GPUs), or the process"
            f" aborts.{several}"
        )

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts
        if value != "default" or environ.get(VARIABLE) != ASYNC:
            return []
        return [
            Problem(
                where=f"environment: {VARIABLE}",
                expected="unset, because devices.allocator is default",
                received=ASYNC,
                fix=f"unset {VARIABLE}, or write devices.allocator: {ASYNC}",
            )
        ]
