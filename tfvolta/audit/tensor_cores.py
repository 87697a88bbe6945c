"""Matrix products and convolutions that Tensor Cores could serve and do not, or serve badly."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.audit.finding import Finding
from tfvolta.errors import BridgeError
from tfvolta.footprint.tensor_cores import Audit, audit

# Below this share of all multiply-adds a change is not worth a warning.
_WORTH_PERCENT = 10.0
_NAMED = 3
# With less work than this in a forward pass a step is as short as the launches of its kernels, on any cores: a V100
# without Tensor Cores takes 0.13 ms for it (15.7 TFLOP/s).
LEAST_MULTIPLY_ADDS = 1_000_000_000


def tensor_core_audit(model: Any, batch: Optional[int] = None) -> Optional[Audit]:
    """The audit of a model that computes in float16; None for any other, or where its layers cannot be known.

    Args:
        model: A built Keras model.
        batch: Examples of one replica's batch; None where not known, and taken as a multiple of 8 then.
    """
    from tfvolta.bridge import bridge_for

    bridge = bridge_for(model)
    if "float16" not in bridge.compute_dtypes(model).values():
        return None
    try:
        return audit(bridge.layer_figures(model, batch or 8), batch or 8)
    except BridgeError:
        return None


def slow_products(found: Audit) -> Optional[Finding]:
    """Says what to change where Tensor Cores serve a tenth of the multiply-adds badly or not; None where they do."""
    rows = [row for row in found.changes if row.share_percent >= _WORTH_PERCENT / _NAMED]
    lost = sum(row.share_percent for row in rows)
    if lost < _WORTH_PERCENT or found.multiply_adds < LEAST_MULTIPLY_ADDS:
        return None
    return Finding(
        rule="tensor_cores",
        what=f"{found.served_percent:.0f} % of the multiply-adds fit Tensor Cores well; {lost:.0f} % could and do not",
        layers=tuple(row.layer for row in rows),
        why="Tensor Cores multiply float16 in rows of 8 values; other types and sizes run at a fraction of the speed",
        fix="; ".join(f"{row.layer}: {row.change}" for row in rows[:_NAMED])
        + ("; tfvolta estimate tensor-cores lists all" if len(rows) > _NAMED else ""),
    )
