"""GPU memory as needed instead of nearly all of it."""

from __future__ import annotations

from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.single import session_of
from tfvolta.phase import Phase


class MemoryGrowth(Carrier):
    """Lets TensorFlow allocate GPU memory as needed.

    Binds: when the GPUs are initialised, which making a model already does. So it applies when this object is
    made, which imports TensorFlow: make it before the first model, strategy or tensor.

    Example:
        ``growth = tfvolta.callbacks.MemoryGrowth()`` at the top of the script, and ``callbacks=[growth]`` in fit.

    Args:
        value: Whether memory grows as needed.
        strict: Whether coming too late is an error instead of a warning.

    Attributes:
        gpus: Names of the GPUs that were set, all visible ones or, on a machine without GPUs, none.

    Raises:
        LateError: The GPUs were already initialised (strict only); names the line to move.
    """

    def __init__(self, value: bool = True, strict: bool = True):
        super().__init__(session_of(strict, devices={"memory_growth": value}))
        self.session.enter(Phase.DEVICES)
        growth = self.session.endings["memory_growth"].outcome.observed.get("growth", {})
        self.gpus = [name for name, state in growth.items() if state is not None and bool(state) is value]
