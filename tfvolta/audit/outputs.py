"""Outputs of a model in half precision."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.audit.finding import Finding


def half_outputs(model: Any) -> Optional[Finding]:
    """Finds outputs in float16 or bfloat16; None where there are none, or none are known before the first call."""
    from tfvolta.bridge import bridge_for

    bridge = bridge_for(model)
    paths = bridge.half_outputs(model)
    if not paths:
        return None
    dtypes = bridge.compute_dtypes(model)
    found = ", ".join(sorted({dtypes.get(path, "") for path in paths} & {"float16", "bfloat16"})) or "half precision"
    return Finding(
        rule="float16_outputs",
        what=f"{len(paths)} output layer{'s' * (len(paths) > 1)} in {found}",
        layers=tuple(paths),
        why="in float16 sigmoid(10) is exactly 1, whose cross-entropy is infinite, and the rows of a softmax do not sum"
        " to 1; bfloat16 has fewer digits still",
        fix="make the last activation with dtype='float32', or call tfvolta.precision.float32_outputs(model) before"
        " fit",
    )
