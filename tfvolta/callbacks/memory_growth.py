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

    Raises:
        LateError: The GPUs were already initialised (strict only); names the line to move.
    """

    def __init__(self, value: bool = True, strict: bool = True):
        super().__init__(session_of(strict, devices={"memory_growth": value}))
        self.session.enter(Phase.DEVICES)
