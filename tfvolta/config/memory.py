"""The section of the config about memory: what is kept, and what happens when it runs out."""

from __future__ import annotations

from typing import Annotated, Literal, Optional

from pydantic import Field

from tfvolta.config.section import Section


class Recompute(Section):
    """Activations that are computed again instead of kept; exactly one of the three ways."""

    layers: Optional[list[Annotated[str, Field(min_length=1)]]] = Field(
        None,
        description="Layer classes, names or paths (shell patterns); layers that follow each other share a segment.",
    )
    every: Optional[int] = Field(
        None, gt=0, description="Blocks in a segment, all through the model; a residual block is one block."
    )
    budget_mb: Optional[int] = Field(
        None, gt=0, description="What activations may take on each replica, MiB; the cut with the least extra work."
    )


class Memory(Section):
    """What a training step holds in memory, and what happens when it runs out."""

    recompute: Optional[Recompute] = Field(
        None, description="Compute activations again for the gradients instead of keeping them."
    )
    on_oom: Optional[Literal["report", "split", "off"]] = Field(
        None,
        description="report says batch, shapes and remedies and keeps the state of the last good batch; split trains "
        "the batch in parts first.",
    )
