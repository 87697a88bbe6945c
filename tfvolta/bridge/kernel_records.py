"""What the bridges say of layers that were given a faster kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

from tfvolta.bridge.records import RefusedLayer

BATCH_NORM = "fused_batch_norm"
RECURRENT = "cudnn_rnn"
UPDATE = "fused_update"


@dataclasses.dataclass(frozen=True)
class KernelChange:
    """What giving a model's layers a faster kernel changed.

    Attributes:
        kind: ``fused_batch_norm`` or ``cudnn_rnn``.
        served: Paths of the layers that use the kernel from their next trace on.
        left: Layers of the kind that stay as Keras runs them, each with the reason.
        native: Why this Keras needs no change; empty where it does.
        undo_token: For ``undo_kernel``.
    """

    kind: str
    served: tuple[str, ...] = ()
    left: tuple[RefusedLayer, ...] = ()
    native: str = ""
    undo_token: Any = dataclasses.field(default=None, repr=False, compare=False)
