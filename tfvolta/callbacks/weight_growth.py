"""Whether the weights themselves have grown out of all proportion, which no precision of a layer mends."""

from __future__ import annotations

from typing import Any, Iterable, Optional

# float16's largest number: a weight beyond it is infinite in a layer that computes in float16, and trained weights are
# of the order of 1.
ENORMOUS = 65504.0


def largest(arrays: Iterable[Any]) -> float:
    """The largest magnitude among the finite numbers of some arrays; 0 where there are none.

    Args:
        arrays: NumPy arrays of any shape; those that hold no floating-point numbers are left out.
    """
    import numpy as np

    found = 0.0
    for array in arrays:
        values = np.asarray(array)
        if values.size and np.issubdtype(values.dtype, np.floating):
            sizes = np.abs(values[np.isfinite(values)])
            found = max(found, float(sizes.max()) if sizes.size else 0.0)
    return found


def said_of(size: float, rate: Optional[float]) -> tuple[str, str]:
    """A sentence on enormous weights and what mends them; both empty where they are not.

    Args:
        size: The largest weight.
        rate: The learning rate; None where it is not known.
    """
    if size <= ENORMOUS:
        return "", ""
    named = "" if rate is None else f", which is {rate:g}"
    return f"The largest weight is {size:.3g}.", f"lower the learning rate{named}: it has made the weights so large"
