"""Windows and float16 gradients between workers, next to one process with batches as large as a window."""

from __future__ import annotations

from typing import Any, Callable

from tests.tensorflow.reduction_faults import scalar
from tests.tensorflow.reduction_models import BATCH, EVERY, MAKERS, compiled, fit, seen

# Optimizer, loss scale, and what is asked of the reduction.
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "window": ("adam", None, {"every": EVERY}),
    "scaled window": ("global_clipnorm", {"initial": 1024.0}, {"every": EVERY}),
    "half": ("momentum", None, {"compression": "fp16"}),
    "half window": ("momentum", {"fixed": 128.0}, {"compression": "fp16", "every": EVERY}),
}


def reduction(strategy: Any, keep: Callable[[str, Any], None]) -> dict[str, Any]:
    """What the bridge saw in each case.

    Args:
        strategy: That of the workers, or of one process, whose batches are then as large as a window.
        keep: Takes the weights of a case.
    """
    alone = strategy.num_replicas_in_sync == 1
    results: dict[str, Any] = {}
    for name, (maker, scale, settings) in CASES.items():
        model = compiled(strategy, MAKERS[maker], scale=scale)
        if alone:
            fit(model, BATCH * settings.get("every", 1))
        else:
            fit(model, BATCH, **settings)
            results[name] = seen(model)
        keep(name, model)
    if not alone:  # of two rows, the second one's worker has an infinite gradient in the first batch of a window
        rows = [1.0, float("inf"), *([1.0] * 6)]
        results["overflow"] = scalar(strategy, rows, {"initial": 1024.0}, compression="fp16", every=2)
    return results
