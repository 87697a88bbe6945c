"""Keras 2: its layers use the fast kernels by themselves."""

from __future__ import annotations

from typing import Any, Mapping

from tfvolta.bridge.kernel_records import BATCH_NORM, RECURRENT, KernelChange

_NATIVE = {
    BATCH_NORM: "This Keras normalises with FusedBatchNormV3 by itself.",
    RECURRENT: "This Keras chooses cuDNN's LSTM and GRU by itself.",
}


class KernelPart:
    """See ``tfvolta.bridge.base.Bridge``."""

    def install_kernel(self, model: Any, kind: str, always: bool = False) -> KernelChange:
        """Nothing to change."""
        del model, always
        return KernelChange(kind, native=_NATIVE[kind])

    def undo_kernel(self, model: Any, change: KernelChange) -> None:
        """Nothing to take back."""

    def kernel_fallbacks(self, model: Any, kind: str) -> Mapping[str, str]:
        """None."""
        del model, kind
        return {}
