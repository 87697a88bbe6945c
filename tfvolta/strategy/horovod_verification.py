"""Verifies that Horovod reduces a model's gradients, by the operations in its traced train step."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Mapping, Optional

from tfvolta.outcome import Outcome, Status

if TYPE_CHECKING:
    from tfvolta.config.schema import Config

UPDATE = "update"
REDUCING = ("HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodAllgather", "HorovodGroupedAllgather")
NOT_REDUCED = (
    "The traced train step holds no operation of Horovod's: its gradients are not reduced, and every rank trains a "
    "model of its own"
)
_FIX = "give the gradients of a train_step to the optimizer: self.optimizer.apply_gradients(zip(gradients, variables))"


def distributed_by(model: Any) -> str:
    """Who reduces a model's gradients over Horovod's ranks: ``tfvolta``, ``script`` (Horovod's own wrapper), or nobody.

    Args:
        model: A compiled Keras model.
    """
    from tfvolta.bridge import bridge_for
    from tfvolta.bridge.horovod_reduction import reduction_of

    bridge = bridge_for(model)
    state = bridge.reduction(model)
    if state is not None and reduction_of(state.settings.all_reduce) is not None:
        return "tfvolta"
    return "script" if wrapped_by_horovod(model) is not None else ""


def wrapped_by_horovod(model: Any) -> Optional[Any]:
    """The optimiser of a model that ``hvd.DistributedOptimizer`` made; None where there is none."""
    from tfvolta.bridge import bridge_for, horovod_ranks

    optimizer = getattr(model, "optimizer", None)
    inner = None if optimizer is None else bridge_for(model).inner_optimizer(optimizer)
    return None if inner is None or horovod_ranks.local_passes(inner) is None else inner


def verify_reduction(model: Any, config: Config) -> Outcome:
    """Whether the traced train step reduces its gradients through Horovod as the config asks.

    Args:
        model: Trained for a step, so that its train function is traced.
        config: What was asked.
    """
    from tfvolta.bridge import bridge_for
    from tfvolta.bridge.horovod_reduction import reduction_of

    bridge = bridge_for(model)
    state = bridge.reduction(model)
    reduction = None if state is None else reduction_of(state.settings.all_reduce)
    graphs = bridge.reduction_graphs(model)
    if UPDATE not in graphs:
        return _without_a_graph(model, reduction)
    graph = graphs[UPDATE]
    found = {key: count for key, count in graph.operations.items() if key.split("[")[0] in REDUCING}
    if reduction is None:
        return _by_the_script(model, config, graph.others)
    observed = _observed(reduction, found)
    if not found:
        return Outcome(Status.NO_EFFECT, f"{NOT_REDUCED}.", observed, _FIX)
    if dict(found) != dict(reduction.expected):
        return Outcome(
            Status.NO_EFFECT,
            f"The traced train step holds {_listed(found)}; {_listed(reduction.expected)} were meant.",
            observed,
        )
    return Outcome(Status.APPLIED, _sentence(reduction, found, config), observed)


def _without_a_graph(model: Any, reduction: Any) -> Outcome:
    if not getattr(model, "run_eagerly", False):
        return Outcome(Status.PENDING, "The first traced train step will show it.")
    if reduction is None or not reduction.formats:
        return Outcome(Status.PENDING, "The first step, which runs eagerly, will show it.")
    count = len(reduction.formats)
    return Outcome(
        Status.APPLIED,
        f"The model runs eagerly; its last step gave {count} gradients to Horovod: {_listed(reduction.expected)}.",
        _observed(reduction, reduction.expected),
    )


def _by_the_script(model: Any, config: Config, others: Mapping[str, int]) -> Outcome:
    """A step that has Horovod's operations from elsewhere, or none at all."""
    found = {key: count for key, count in others.items() if key.split("[")[0] in REDUCING}
    asked = [key for key in ("groups", "compression", "reduce_every") if config.get(f"communication.{key}") is not None]
    observed: dict[str, Any] = {"operations": found, "reduced_by": "script"}
    if not found:
        return Outcome(Status.NO_EFFECT, f"{NOT_REDUCED}.", observed, _FIX)
    if asked:
        names = ", ".join(f"communication.{key}" for key in asked)
        message = f"The script reduces its gradients itself ({_listed(found)}), so {names} changes nothing."
        return Outcome(Status.NO_EFFECT, message, observed, "compile with the plain optimizer, or give it there")
    return Outcome(Status.APPLIED, f"The script reduces its gradients itself: {_listed(found)}.", observed)


def _observed(reduction: Any, found: Mapping[str, int]) -> dict[str, Any]:
    return {
        "ranks": reduction.size,
        "operations": dict(found),
        "expected": dict(reduction.expected),
        "gradients": dict(collections.Counter(reduction.formats)),
        "gathered": reduction.gathered,
        "sparse": [choice.to_json() for choice in reduction.sparse.values()],
    }


def _sentence(reduction: Any, found: Mapping[str, int], config: Config) -> str:
    count = len(reduction.formats)
    parts = [f"{count} gradients over {reduction.size} ranks: the traced train step holds {_listed(found)}."]
    if config.get("communication.compression") == "fp16":
        halves = reduction.formats.count("float16")
        parts.append(f"Compression covers {halves} of {count} variables.")
    for choice in reduction.sparse.values():
        rows = "unknown rows" if choice.rows is None else f"up to {choice.rows} rows a rank"
        gathered = "" if choice.gathered_bytes is None else f", {choice.gathered_bytes} bytes gathered"
        way = "made dense" if choice.as_dense else "its rows gathered"
        parts.append(f"{choice.name}: sparse, {rows}{gathered}, {choice.dense_bytes} bytes dense; {way}.")
    return " ".join(parts)


def _listed(operations: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(operations.items())) or "no operation of Horovod's"
