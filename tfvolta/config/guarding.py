"""Section of the config that holds a run to the figures of an earlier one."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic import Field

from tfvolta.config.section import Section


class Guard(Section):
    """What a run is held to: throughput and loss of an earlier run of the same script."""

    baseline: str = Field(
        "auto", min_length=1, description="Id of the earlier run, or auto: the latest without a guard."
    )
    throughput_floor: Optional[float] = Field(
        0.9, gt=0, le=1, description="Share of the earlier throughput that has to be reached; null does not look."
    )
    loss_band: Optional[float] = Field(
        0.2,
        gt=0,
        description="How far the loss of an epoch may be from the earlier one, as its share; null does not look.",
    )
    action: Literal["report", "stop", "rollback"] = Field(
        "report", description="What then: warn; end fit; end fit and restore the earlier run's config file."
    )
    every_steps: int = Field(50, gt=0, description="Steps that are timed together; six such times are compared.")
