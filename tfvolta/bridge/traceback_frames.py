"""Where an exception came from, by the functions in its traceback."""

from __future__ import annotations

from typing import Optional

_UPDATES = frozenset({"apply", "apply_gradients", "_apply", "_resource_apply_dense", "_resource_apply_sparse"})


def is_updating(error: BaseException) -> bool:
    """Whether an optimiser was updating variables; for steps that run without a graph, one operation after another."""
    trace: Optional[object] = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name in _UPDATES:  # type: ignore[attr-defined]
            return True
        trace = trace.tb_next  # type: ignore[attr-defined]
    return False
