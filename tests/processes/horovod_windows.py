"""Windows of several batches on two ranks, against one process with batches as large; part of ``horovod_runs``."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import tfvolta
from tests.processes.horovod_models import (
    BATCH,
    LEGACY,
    STEPS,
    X,
    Y,
    dense_model,
    flat,
    iterations_of,
    keras,
    relative,
    session_of,
    share,
    train,
)
from tfvolta.bridge import bridge_for

HALF = {"policy": "mixed_float16", "loss_scale": {"initial": 1024.0}}
ENDINGS = ("compression", "reduce_every")


def adam() -> Any:
    return keras.optimizers.Adam(0.01)


def windows(rank: int) -> dict[str, Any]:
    """Four batches of each rank make one update."""
    asked: dict[str, tuple[Callable[[], Any], Mapping[str, Any]]] = {
        "plain": (adam, {"reduce_every": 4}),
        "groups": (lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.5), {"reduce_every": 4, "groups": 1}),
        "compressed": (lambda: keras.optimizers.SGD(0.05, momentum=0.9), {"reduce_every": 4, "compression": "fp16"}),
    }
    if LEGACY is not None:
        asked["legacy"] = (lambda: LEGACY.Adam(0.01), {"reduce_every": 4})
    found: dict[str, Any] = {}
    for name, (make, communication) in asked.items():
        model, single, session = dense_model(), dense_model(), session_of(communication=dict(communication))
        compiled = {"steps_per_execution": 8} if name == "groups" else {}  # two windows in a loop of the graph
        train(model, make(), (share(X, rank), share(Y, rank)), session, compiled=compiled)
        train(single, make(), (X, Y), batch_size=4 * 2 * BATCH)
        found[name] = {"difference": relative(model, single), **seen(model, session)}
    return found


def overflow_in_a_window(rank: int) -> dict[str, Any]:
    """Infinite gradients in one batch of rank 1, with mixed_float16: its window is left out on both ranks."""
    targets = Y.copy()
    targets.reshape(-1, 2, BATCH, 1)[4, 1] = 6e4  # the fifth batch of rank 1, the first of its third window
    session = session_of(mixed_precision=HALF, communication={"reduce_every": 2, "compression": "fp16"})
    model, single = dense_model(), dense_model()
    train(model, keras.optimizers.SGD(0.05), (share(X, rank), share(targets, rank)), session)
    half = tfvolta.callbacks.MixedPrecision("mixed_float16", initial_scale=1024.0)
    train(single, keras.optimizers.SGD(0.05), (X, targets), batch_size=4 * BATCH, callbacks=[half])
    bridge = bridge_for(model)
    bridge.set_global_policy("float32")
    return {
        "difference": relative(model, single),
        "weights": [float(value) for value in flat(model)],
        "scales": [bridge.loss_scale(each.optimizer).scale for each in (model, single)],
        "skipped": bridge.step_counts(model).skipped,
        **seen(model, session),
    }


def seen(model: Any, session: Any) -> dict[str, Any]:
    """Counts, operations and how the settings ended."""
    bridge = bridge_for(model)
    state = bridge.reduction(model)
    return {
        "batches": state.batches == STEPS,
        "updates": state.updates,
        "applied": bridge.step_counts(model).applied,
        "iterations": iterations_of(model),
        "operations": {mode: dict(graph.operations) for mode, graph in bridge.reduction_graphs(model).items()},
        **{name: session.endings[name].outcome.to_json() for name in ENDINGS if name in session.endings},
    }


CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "windows": windows,
    "overflow in a window": overflow_in_a_window,
}
