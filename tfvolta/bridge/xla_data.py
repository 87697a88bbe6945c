"""Data that a step which XLA compiles cannot take, told by their types before anything is traced."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge.batch_shapes import labelled
from tfvolta.bridge.records import XlaFault

DATA = "the data"  # where such a fault lies
_EACH_ANEW = "its number of values differs from batch to batch, and XLA would compile the step anew for each"


def faults(spec: Any) -> tuple[XlaFault, ...]:
    """Parts of a batch that keep its step from being compiled, each with the reason.

    Args:
        spec: The element spec of the iterator that the train function is called with; None where it has none.
    """
    if spec is None:
        return ()
    found = [(label, _fault(part)) for label, part in labelled(spec)]
    return tuple(
        XlaFault(f"{kind} {label} ({reason})", place=DATA, reason=reason) for label, (kind, reason) in found if kind
    )


def _fault(part: Any) -> tuple[Optional[str], str]:
    if getattr(part, "dtype", None) == tf.string:
        return "string input", "strings have no XLA type"
    if isinstance(part, tf.RaggedTensorSpec):
        return "ragged input", _EACH_ANEW
    if isinstance(part, tf.SparseTensorSpec):
        return "sparse input", _EACH_ANEW
    return None, ""
