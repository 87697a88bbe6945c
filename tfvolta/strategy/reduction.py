"""How gradients travel and how often: where that can be asked for, and whether the train functions do it.

It is verified by the traced train functions and by the optimiser's own count of its steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.outcome import Outcome, Status
from tfvolta.strategy.devices import where

if TYPE_CHECKING:
    from tfvolta.bridge.base import Bridge
    from tfvolta.bridge.reduction import ReductionGraph, ReductionState
    from tfvolta.config.schema import Config

ACCUMULATE, UPDATE = "accumulate", "update"
_UNREDUCED = {
    "parameter_server": "workers send their gradients to the parameter servers and never reduce them among each other; "
    "each update is one worker's",
    "central_storage": "its variables are in one place, and gradients are copied there and added up",
}


def unreduced(config: Config, kind: str) -> list[Problem]:
    """What is asked of a reduction that a strategy kind does not have."""
    if kind not in _UNREDUCED:
        return []
    asked = {
        "compression": config.get("communication.compression") not in (None, "none"),
        "reduce_every": (config.get("communication.reduce_every") or 1) > 1,
    }
    return [
        Problem(
            where=where(config, f"communication.{key}"),
            expected="a strategy kind that reduces gradients: mirrored, multi_worker_mirrored or horovod",
            received=f"{key}: {config.get(f'communication.{key}')} with strategy.kind: {kind}",
            why=_UNREDUCED[kind],
            fix=f"remove {key}" + ("; a larger batch has fewer updates" if key == "reduce_every" else ""),
        )
        for key, is_asked in asked.items()
        if is_asked
    ]


def verify_compression(model: Any, bridge: Bridge) -> Outcome:
    """Whether a model's gradients travel as float16, seen in the dtypes of the operations that reduce them.

    Args:
        model: Trained until its first update, so that the function that reduces is traced.
        bridge: The bridge of its Keras.
    """
    state = bridge.reduction(model)
    if state is None or state.settings.compression != "fp16":
        return Outcome(Status.NO_EFFECT, "The model's gradients travel in the dtype of their variables.")
    if _is_alone(model, state):
        return Outcome(Status.NO_EFFECT, "One replica: no gradient travels.", {"replicas": 1})
    if state.settings.all_reduce is not None and state.settings.all_reduce.compresses:
        name = state.settings.all_reduce.name
        return Outcome(Status.UNVERIFIABLE, f"{name} changes the number format itself; the graph does not show it.")
    graph = bridge.reduction_graphs(model).get(UPDATE)
    if graph is None:
        return _without_a_graph(model, state)
    observed = {**_sizes(state), "operations": dict(graph.operations), "graph_bytes": graph.bytes}
    if not graph.operations:
        return Outcome(Status.NO_EFFECT, _NOTHING, observed)
    halves = sum(count for key, count in graph.operations.items() if key.endswith("[float16]"))
    wide = {key: count for key, count in graph.operations.items() if key.endswith(("[float32]", "[float64]"))}
    if not halves:
        return Outcome(Status.NO_EFFECT, f"No gradient travels as float16: {_listed(graph.operations)}.", observed)
    rest = f" Not compressed: {_listed(wide)}." if wide else ""
    return Outcome(Status.APPLIED, f"{_travelling(state)}: {_listed(graph.operations)} a step.{rest}", observed)


def verify_window(model: Any, bridge: Bridge, every: int, attempted_before: Optional[int]) -> Outcome:
    """Whether a model is updated, and its gradients reduced, once in so many batches.

    Args:
        model: Trained until its first update, so that both functions are traced.
        bridge: The bridge of its Keras.
        every: Batches for one update.
        attempted_before: Optimiser steps before the fit; None where they were not counted.
    """
    state = bridge.reduction(model)
    if state is None or state.settings.every != every:
        return Outcome(Status.NO_EFFECT, "The model is updated with each batch.")
    if not state.updates:
        return Outcome(Status.PENDING, f"The first update, after {every} batches, will show it.")
    observed: dict[str, Any] = {**_sizes(state), "batches": state.batches, "updates": state.updates}
    counts = bridge.step_counts(model)
    if counts is not None and counts.attempted is not None and attempted_before is not None:
        observed["optimizer_steps"] = counts.attempted - attempted_before
        if observed["optimizer_steps"] != state.updates:
            return Outcome(
                Status.NO_EFFECT,
                f"The optimizer took {observed['optimizer_steps']} steps in {state.batches} batches, not"
                f" {state.updates}: the train step updates the weights past it.",
                observed,
            )
    if not state.gradient_bytes:
        return Outcome(Status.NO_EFFECT, "The train step never gives its optimizer a gradient.", observed)
    graphs = bridge.reduction_graphs(model)
    adding = graphs.get(ACCUMULATE)
    stray = None if adding is None else _stray(adding, state)
    observed["operations"] = {mode: dict(graph.operations) for mode, graph in graphs.items()}
    observed["others"] = {mode: dict(graph.others) for mode, graph in graphs.items()}
    if stray is not None:
        return Outcome(Status.NO_EFFECT, stray, observed)
    if _is_alone(model, state):
        return Outcome(Status.APPLIED, f"One update in {every} batches.", observed)
    update = graphs.get(UPDATE)
    if update is not None and not update.operations:
        return Outcome(Status.NO_EFFECT, _NOTHING, observed)
    if update is None:
        return Outcome(Status.APPLIED, f"One update in {every} batches. The model runs eagerly.", observed)
    return Outcome(
        Status.APPLIED,
        f"One update and one reduction in {every} batches: {_listed(update.operations)} in it, none in the"
        f" {every - 1} before. {_a_batch(state)}",
        observed,
    )


_NOTHING = "The traced train step reduces no gradient on its way to the optimizer: it reduces by itself, or not at all."


def _stray(adding: ReductionGraph, state: ReductionState) -> Optional[str]:
    """What the function that only adds up reduces all the same; None where that is no gradient."""
    if adding.operations:
        return f"Gradients are reduced with every batch: {_listed(adding.operations)}."
    if adding.other_bytes is not None and adding.other_bytes * 2 >= (state.gradient_bytes or 0) and adding.others:
        return (
            f"The train step reduces {_bytes(adding.other_bytes)} with every batch by itself"
            f" ({_listed(adding.others)}), as much as its gradients."
        )
    return None


def _is_alone(model: Any, state: ReductionState) -> bool:
    all_reduce = state.settings.all_reduce
    parties = int(model.distribute_strategy.num_replicas_in_sync) if all_reduce is None else all_reduce.ranks
    return parties == 1


def _without_a_graph(model: Any, state: ReductionState) -> Outcome:
    if not getattr(model, "run_eagerly", False) or state.wire_bytes is None:
        return Outcome(Status.PENDING, "The first traced update will show it.")
    return Outcome(Status.APPLIED, f"{_travelling(state)}. The model runs eagerly.", _sizes(state))


def _sizes(state: ReductionState) -> dict[str, Any]:
    return {"gradient_bytes": state.gradient_bytes, "wire_bytes": state.wire_bytes, "every": state.settings.every}


def _travelling(state: ReductionState) -> str:
    if state.wire_bytes is None or state.gradient_bytes is None:
        return "Gradients travel as float16"
    return (
        f"Gradients travel as float16, {_bytes(state.wire_bytes)} a replica and update in place of"
        f" {_bytes(state.gradient_bytes)}"
    )


def _a_batch(state: ReductionState) -> str:
    """Bytes a batch before and after, as a sentence."""
    if state.wire_bytes is None or state.gradient_bytes is None:
        return ""
    return (
        f"A replica sends {_bytes(state.wire_bytes / state.settings.every)} a batch in place of"
        f" {_bytes(state.gradient_bytes)}."
    )


def _bytes(number: float) -> str:
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"


def _listed(operations: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(operations.items()))
