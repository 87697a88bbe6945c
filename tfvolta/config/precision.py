"""Sections of the config about float16's range: the loss scale, the gradients' figures, and alarms."""

from __future__ import annotations

from typing import Annotated, Literal, Optional

from pydantic import Field, model_validator

from tfvolta.config.section import Section

DEFAULT_INITIAL = 32768.0
Action = Literal["report", "stop", "raise"]


class LossScale(Section):
    """Loss scaling for float16 gradients."""

    initial: float = Field(DEFAULT_INITIAL, gt=0, allow_inf_nan=False, description="First dynamic loss scale.")
    growth_steps: int = Field(2000, gt=0, description="Finite steps in a row before the dynamic scale doubles.")
    fixed: Optional[float] = Field(
        None, gt=0, allow_inf_nan=False, description="A constant scale instead of a dynamic one."
    )
    floor: Optional[float] = Field(
        None, gt=0, allow_inf_nan=False, description="The dynamic scale does not fall below it; 1 by default."
    )
    ceiling: Optional[float] = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        examples=[2.0**24],
        description="The dynamic scale does not grow above it; by default no limit.",
    )
    hysteresis: int = Field(
        1, gt=0, description="Overflows until the scale halves; those before it are skipped and leave it."
    )

    @model_validator(mode="after")
    def _in_order(self) -> LossScale:
        """Floor, first value and ceiling, as far as they are given, have to be in this order."""
        faults = []
        if self.floor is not None and self.ceiling is not None and self.floor > self.ceiling:
            faults.append(f"floor {self.floor:g} is above ceiling {self.ceiling:g}, so no scale is allowed")
        if "initial" in self.model_fields_set:
            if self.floor is not None and self.initial < self.floor:
                faults.append(f"initial {self.initial:g} is below floor {self.floor:g}")
            if self.ceiling is not None and self.initial > self.ceiling:
                faults.append(f"initial {self.initial:g} is above ceiling {self.ceiling:g}")
        if faults:
            raise ValueError(f"{'; '.join(faults)}: choose floor <= initial <= ceiling")
        return self

    def lowest(self) -> float:
        """The floor that holds: that given, or 1, which plain Keras has, unless training begins below."""
        return self.floor if self.floor is not None else min(1.0, self.initial, self.ceiling or 1.0)

    def first(self) -> float:
        """The first scale: that given, or the default within the bounds."""
        first = max(self.initial, self.lowest())
        return first if self.ceiling is None else min(first, self.ceiling)


class GradientMonitor(Section):
    """Figures of the gradients, in their true size, in some steps."""

    every_steps: int = Field(
        100, gt=0, description="Look at the gradients of the first step of a fit and of each so many after it."
    )
    groups: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description="Layer classes, names or paths (shell patterns), a group each; by default each top-level layer.",
    )
    tensorboard: Optional[str] = Field(
        None, min_length=1, description="Folder that takes the figures as scalars for TensorBoard too."
    )


class Alarms(Section):
    """When training goes wrong numerically, and what then."""

    min_loss_scale: Optional[float] = Field(
        None, gt=0, allow_inf_nan=False, description="Alarm when the loss scale is below this."
    )
    max_skipped_in_row: Optional[int] = Field(
        None, gt=0, description="Alarm when so many steps in a row were skipped for non-finite gradients."
    )
    nan_loss: Optional[Action] = Field(None, description="What to do when the loss is not finite.")
    action: Action = Field("stop", description="What to do at the alarms of the loss scale and of skipped steps.")
    every_steps: int = Field(
        1,
        gt=0,
        description="Look so often, which waits for the device; batches in between are kept for the search.",
    )
