"""XLA compilation of the train step."""

from __future__ import annotations

from typing import Union

from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.single import session_of


class XlaJit(Carrier):
    """Compiles a model's train step with XLA from its next fit on, compiled and traced models included.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.XlaJit()])``

    Args:
        value: True compiles the model's step; False switches that off; ``"auto"`` decides for this model,
            stack and strategy and says why; ``"clustering"`` lets TensorFlow pick clusters of operations.
        strict: Whether a setting that comes too late or changes nothing is an error instead of a warning.

    Raises:
        ConfigError: The value is not accepted.
    """

    def __init__(self, value: Union[bool, str] = True, strict: bool = True):
        jit = {True: "model", False: "off"}[value] if isinstance(value, bool) else value
        super().__init__(session_of(strict, xla={"jit": jit}))
