"""What two ranks train, against one process with the same global batches; part of ``horovod_runs``."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping

import numpy as np

import tfvolta
from tests.processes.horovod_models import (
    BATCH,
    IDS,
    KERAS3,
    LEGACY,
    UNIQUE_IDS,
    X,
    Y,
    compared,
    dense_model,
    embedding_model,
    endings,
    fit,
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


def momentum(**arguments: Any) -> Any:
    return keras.optimizers.SGD(0.05, momentum=0.9, **arguments)


def equal_to_one_process(rank: int) -> dict[str, Any]:
    """Optimisers in float32."""
    makers: dict[str, Callable[[], Any]] = {
        "sgd": lambda: keras.optimizers.SGD(0.05),
        "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
        "global_clipnorm": lambda: momentum(global_clipnorm=0.5),
        "clipnorm": lambda: momentum(clipnorm=0.3),
    }
    if LEGACY is not None:
        makers["legacy adam"] = lambda: LEGACY.Adam(0.01, clipnorm=0.3)
    return {name: compared(dense_model, make, rank, session_of()) for name, make in makers.items()}


def formats(rank: int) -> dict[str, Any]:
    """Groups, float16 on the wire, and the division around the sum."""
    asked: dict[str, Mapping[str, Any]] = {
        "groups": {"communication": {"groups": 2}},
        "compression": {"communication": {"groups": 3, "compression": "fp16"}},
        "predivide": {"horovod": {"predivide_factor": 1.0}},
    }
    return {name: compared(dense_model, momentum, rank, session_of(**sections)) for name, sections in asked.items()}


def sparse(rank: int) -> dict[str, Any]:
    """An embedding that is smaller dense than gathered, one that is not, and the choices that a config can force."""

    def large() -> Any:
        return embedding_model(1000)

    def adam() -> Any:
        return keras.optimizers.Adam(0.01)

    always = session_of(horovod={"sparse_as_dense": "always"})
    half = session_of(communication={"compression": "fp16"})
    return {
        "small": compared(embedding_model, momentum, rank, session_of(), IDS),
        "large": compared(large, adam, rank, session_of(), UNIQUE_IDS),
        "always": compared(large, adam, rank, always, UNIQUE_IDS),
        "repeated": compared(large, momentum, rank, session_of(horovod={"sparse_as_dense": "never"}), IDS),
        "compressed": compared(large, momentum, rank, half, IDS),
    }


class Scales(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Remembers the loss scale after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(bridge_for(self.model).loss_scale(self.model.optimizer).scale)


def overflow(rank: int) -> dict[str, Any]:
    """mixed_float16 with a batch on rank 1 whose gradients are infinite."""
    targets = Y.copy()
    targets.reshape(-1, 2, BATCH, 1)[3, 1] = 6e4  # the fourth step of rank 1
    session, scales = session_of(mixed_precision=HALF), Scales()
    model, single = dense_model(), dense_model()
    train(model, momentum(), (share(X, rank), share(targets, rank)), session, callbacks=[scales])
    alone = Scales()
    half = tfvolta.callbacks.MixedPrecision("mixed_float16", initial_scale=1024.0)
    train(single, momentum(), (X, targets), callbacks=[half, alone])
    bridge_for(model).set_global_policy("float32")
    counts = bridge_for(model).step_counts(model)
    return {
        "scales": scales.seen,
        "alone": alone.seen,
        "skipped": counts.skipped,
        "weights": [float(value) for value in flat(model)],
        "difference": relative(model, single),
        **endings(session),
    }


def same_start(rank: int) -> dict[str, Any]:
    """Ranks that start with other weights and other optimiser state: all train as rank 0 does."""
    model, single = dense_model(seed=7 + rank), dense_model(seed=7)
    for each, steps in ((model, 0 if rank else 3), (single, 3)):
        each.compile(keras.optimizers.Adam(0.02), "mse", jit_compile=False)
        if steps:
            each.fit(X[: steps * 16], Y[: steps * 16], batch_size=16, shuffle=False, verbose=0)
    session = session_of()
    fit(model, (share(X, rank), share(Y, rank)), session)
    fit(single, (X, Y))
    return {"difference": relative(model, single), "iterations": iterations_of(model)}


def kept_state(rank: int) -> dict[str, Any]:
    """An optimiser that has trained keeps its count and its slots when it is distributed."""
    found: dict[str, Any] = {}
    for name, make in (("new", keras.optimizers.Adam), ("legacy", LEGACY and LEGACY.Adam)):
        if make is None:
            continue
        model = dense_model()
        model.compile(make(0.01), "mse", jit_compile=False)
        model.fit(X[:48], Y[:48], batch_size=16, shuffle=False, verbose=0)
        before = state_of(model)
        session = session_of()
        session.attach(model)
        after = state_of(model)
        found[name] = {"iterations": after[0], "kept": before[0] == after[0] and np.array_equal(before[1], after[1])}
    return found


def state_of(model: Any) -> tuple[int, Any]:
    """The step count of an optimiser and all its variables in one row."""
    variables = [variable for _, variable in bridge_for(model).training_variables(model)["optimizer"]]
    return iterations_of(model), np.concatenate(
        [np.ravel(variable.numpy()).astype("float64") for variable in variables]
    )


def eager(rank: int) -> dict[str, Any]:
    """A model that runs eagerly."""
    session = session_of(communication={"groups": 2})
    data = {"compiled": {"run_eagerly": True, "jit_compile": None if KERAS3 else False}}
    return compared(dense_model, momentum, rank, session, **data)


def jit(rank: int) -> dict[str, Any]:
    """XLA: a script that asks for it, and a config that leaves it to tfvolta."""
    session = session_of()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asked = compared(dense_model, momentum, rank, session, compiled={"jit_compile": True})
    auto = session_of(xla={"jit": "auto"})
    return {
        "asked": asked,
        "warnings": [str(each.message) for each in caught],
        "auto": compared(dense_model, momentum, rank, auto),
    }


CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "equal": equal_to_one_process,
    "formats": formats,
    "sparse": sparse,
    "overflow": overflow,
    "same start": same_start,
    "kept state": kept_state,
    "eager": eager,
    "jit": jit,
}
