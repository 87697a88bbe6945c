"""Scratch memory of cuDNN convolutions."""

from __future__ import annotations

from typing import Union

from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.single import session_of
from tfvolta.phase import Phase


class CudnnWorkspace(Carrier):
    """Limits the scratch memory with which cuDNN may run a convolution.

    Binds: when TensorFlow first executes a convolution in the process. So it applies when this object is made.
    XLA-compiled steps have their own limit and ignore this one.

    Args:
        limit_mb: Limit per convolution, MiB; ``auto`` for a share of the GPU's memory.
        strict: Whether coming too late or changing nothing is an error instead of a warning.

    Raises:
        ConfigError: The limit is neither a positive integer nor ``auto``.
        LateError: A convolution has already run (strict only); names the line to move.
    """

    def __init__(self, limit_mb: Union[int, str], strict: bool = True):
        super().__init__(session_of(strict, cudnn={"workspace_limit_mb": limit_mb}))
        self.session.enter(Phase.ENVIRONMENT)
