"""Activations computed again instead of kept, for a model that is already built and compiled."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.single import session_of


class GradientCheckpointing(Carrier):
    """Makes a model drop activations and compute them again for the gradients, for the fit that it is given to.

    The model trains to the same weights: the second pass uses the same dropout masks, and batch norm's moving
    statistics change once a step.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.GradientCheckpointing(every=1)])``

    Args:
        layers: Layer classes, names or paths (shell patterns) to compute again.
        every: Blocks in a segment, all through the model: each segment keeps its input only.
        budget_mb: What activations may take on each replica, MiB; the cut with the least extra work is chosen.
        strict: Whether a setting that changes nothing is an error instead of a warning.

    Raises:
        ConfigError: An argument is not accepted.
        PlanError: None or several of the three ways are given.
    """

    def __init__(
        self,
        layers: Union[str, Sequence[str], None] = None,
        every: Optional[int] = None,
        budget_mb: Optional[int] = None,
        strict: bool = True,
    ):
        names = [layers] if isinstance(layers, str) else None if layers is None else list(layers)
        given = {"layers": names, "every": every, "budget_mb": budget_mb}
        section: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        super().__init__(session_of(strict, memory={"recompute": section}))
