"""Faster kernels for the layers of a Keras 3 model."""

from __future__ import annotations

from typing import Optional

from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.single import session_of


class Kernels(Carrier):
    """Fuses batch normalisation, and runs LSTM and GRU in cuDNN's own layout, from a model's next fit on.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.Kernels()])``

    Args:
        fused_batch_norm: ``"auto"`` on GPUs where XLA does not compile the step, ``"on"``, ``"off"``, or None to leave
            it alone.
        cudnn_rnn: The same for LSTM and GRU layers.
        fused_update: The same for the update of the weights under mixed_float16.
        strict: Whether a setting that changes nothing is an error instead of a warning.

    Raises:
        ConfigError: A value is not accepted.
    """

    def __init__(
        self,
        fused_batch_norm: Optional[str] = "auto",
        cudnn_rnn: Optional[str] = "auto",
        fused_update: Optional[str] = "auto",
        strict: bool = True,
    ):
        kernels = {"fused_batch_norm": fused_batch_norm, "cudnn_rnn": cudnn_rnn, "fused_update": fused_update}
        super().__init__(session_of(strict, kernels=kernels))
