"""Verifies how gradients are reduced by what the traced train step contains."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

from tfvolta.bridge.all_reduce_record import Reduction
from tfvolta.outcome import Outcome, Status
from tfvolta.strategy import communication, history
from tfvolta.strategy.devices import short

if TYPE_CHECKING:
    from tfvolta.bridge.base import GraphSummary
    from tfvolta.config.schema import Config

XLA_INSTEAD = (
    "set xla.jit: clustering or off to keep the packs, or implementation: auto with pack_mb, which a compiled step has "
    "too; compiled by XLA, MirroredStrategy reduces gradients with TensorFlow's own collectives (NCCL)"
)


@dataclasses.dataclass(frozen=True)
class Expected:
    """Operations with which one train step reduces its gradients.

    Attributes:
        operation: Their type.
        count: How many, over all replicas.
        packs: Packs (tensors that are reduced as one).
    """

    operation: str
    count: int
    packs: int


def expected_collectives(implementation: str, num_packs: Optional[int], gradients: int, replicas: int) -> Expected:
    """What one reduction of gradients puts into the graph under MirroredStrategy.

    Args:
        implementation: As in the config.
        num_packs: Packs asked for; None is TensorFlow's default (one), 0 one per gradient.
        gradients: Number of dense gradient tensors.
        replicas: Number of replicas, two at least.

    Source: counted in traced graphs of TensorFlow 2.15 and 2.21, with 2, 4 and 8 replicas; hierarchical copy adds up
    each of its two groups and then the two sums, and groups of one replica need no addition.
    """
    packs = 1 if num_packs is None else (num_packs or gradients)
    if implementation == "hierarchical_copy":
        return Expected("AddN", packs * (1 if replicas == 2 else 3), packs)
    if implementation == "nccl":
        return Expected("NcclAllReduce", packs * replicas, packs)
    if implementation == "reduction_to_one_device":
        return Expected("AddN", gradients, gradients)
    return Expected("CollectiveReduce", replicas, 1)


def verify_packing(model: Any, config: Config, strategy: Any) -> Outcome:
    """Whether the traced train step reduces its gradients as the communication section asks.

    Args:
        model: Trained for one step at least, so that its train function is traced.
        config: What was asked.
        strategy: The strategy of the model, as ``build_strategy`` made it.

    Returns:
        APPLIED with the operations counted; NO_EFFECT where one replica reduces nothing, where XLA compiles the
        step, or where the graph has another number; UNVERIFIABLE where nothing was traced.
    """
    from tfvolta.bridge.graphs import summarize, traced_graphs

    replicas = int(strategy.num_replicas_in_sync)
    if replicas == 1:
        return _one_replica(config)
    summary = summarize(model)
    if summary is None:
        return Outcome(Status.UNVERIFIABLE, "No train step was traced: train for one step, and not with run_eagerly.")
    algorithm = communication.implementation(config)
    if algorithm == "auto" or _has_workers(config):
        return _collectives(model, config, strategy, summary)
    reducer = history.reducer_of(strategy)
    if reducer is None:
        return Outcome(
            Status.NO_EFFECT,
            f"The model's strategy was not built by tfvolta, so implementation: {algorithm} did not reach it; "
            "build it with tfvolta.build_strategy(config).",
            {"replicas": replicas},
        )
    graphs = traced_graphs(model)
    seen = [reduction for reduction in reducer.reductions if reduction.is_in(graphs)]
    if not seen:
        return _nothing_seen(summary, algorithm, replicas)
    return _compare(seen, algorithm, config, replicas)


def _has_workers(config: Config) -> bool:
    """Whether the replicas of the config's kind live in several processes, which reduce by collectives only."""
    return bool(config.get("strategy.kind") == "multi_worker_mirrored")


def _collectives(model: Any, config: Config, strategy: Any, summary: GraphSummary) -> Outcome:
    """TensorFlow's own collectives, by what was noted while the step was traced."""
    from tfvolta.bridge.all_reduce import records_of
    from tfvolta.bridge.graphs import traced_graphs
    from tfvolta.strategy.collectives import verify_collectives

    replicas = int(strategy.num_replicas_in_sync)
    graphs = traced_graphs(model)
    seen = [reduction for reduction in records_of(strategy) or () if reduction.operations and reduction.is_in(graphs)]
    return verify_collectives(seen, config, summary, replicas) if seen else _default(summary, replicas)


def _one_replica(config: Config) -> Outcome:
    asked = communication.asked(config)
    if not asked:
        return Outcome(Status.NOT_APPLICABLE, "One replica: there is nothing to reduce.", {"replicas": 1})
    return Outcome(
        Status.NO_EFFECT,
        f"One replica: nothing is reduced, so communication.{', communication.'.join(asked)} changes nothing.",
        {"replicas": 1},
    )


def _default(summary: GraphSummary, replicas: int) -> Outcome:
    """TensorFlow's own choice: collectives, one per replica and pack."""
    counts = {key: number for key, number in summary.collectives.items() if key.startswith("CollectiveReduce")}
    total = sum(counts.values())
    # Traces of a loop can share the traced step, so that there are fewer operations than traces would have.
    per_step = max(total // max(1, summary.traces), min(total, replicas))
    observed = {"replicas": replicas, "collectives": counts, "hints": dict(summary.hints), "traces": summary.traces}
    if per_step < replicas:
        return Outcome(
            Status.NO_EFFECT,
            f"The traced train step has {per_step} CollectiveReduce operations for {replicas} replicas: "
            "it does not reduce its gradients through the strategy.",
            observed,
        )
    hints = sorted({key[key.index("[") + 1 : -1] for key in summary.hints if key.startswith("CollectiveReduce")})
    return Outcome(
        Status.APPLIED,
        f"TensorFlow's default: {per_step} CollectiveReduce operations a step over {replicas} replicas"
        + (f", asking for {' and '.join(hints)}." if hints else "."),
        observed,
    )


def _nothing_seen(summary: GraphSummary, algorithm: str, replicas: int) -> Outcome:
    """The train step never called the strategy's all-reduce: XLA took another path, or nothing is reduced."""
    observed = {"replicas": replicas, "must_compile": summary.must_compile, "collectives": dict(summary.collectives)}
    if summary.must_compile:
        message = (
            f"XLA compiles the train step; MirroredStrategy then ignores {algorithm} and num_packs: {XLA_INSTEAD}."
        )
    else:
        message = (
            f"The traced train step never called {algorithm}: its gradients are not reduced through the strategy "
            "in one batch (a custom train_step that reduces each by itself, or not at all)."
        )
    return Outcome(Status.NO_EFFECT, message, observed)


def _compare(seen: Sequence[Reduction], algorithm: str, config: Config, replicas: int) -> Outcome:
    """Counted operations against expected ones, for every trace of the step."""
    num_packs = config.get("communication.num_packs")
    wrong: list[str] = []
    for reduction in seen:
        expected = expected_collectives(algorithm, num_packs, len(reduction.shapes), replicas)
        counted = reduction.operations.get(expected.operation, 0)
        if counted != expected.count:
            wrong.append(f"{counted} {expected.operation} instead of {expected.count}")
    last = seen[-1]
    expected = expected_collectives(algorithm, num_packs, len(last.shapes), replicas)
    observed = {
        "replicas": replicas,
        "gradients": len(last.shapes),
        "sparse_gradients": last.sparse,
        "packs": expected.packs,
        "expected": {expected.operation: expected.count},
        "counted": _interesting(last.operations),
        "traces": len(seen),
    }
    if wrong:
        return Outcome(Status.NO_EFFECT, f"The traced train step has {'; '.join(sorted(set(wrong)))}.", observed)
    packs = "1 pack" if expected.packs == 1 else f"{expected.packs} packs"
    message = (
        f"{len(last.shapes)} gradients in {packs} over {replicas} replicas: "
        f"the traced train step has {expected.count} {expected.operation} for them."
    )
    if last.sparse:
        message += f" Sparse gradients ({last.sparse}) are gathered one by one and never packed."
    return Outcome(Status.APPLIED, message, observed)


def _interesting(operations: Mapping[str, int]) -> dict[str, int]:
    kinds = ("AddN", "NcclAllReduce", "ConcatV2", "Split", "SplitV")
    return {key: operations[key] for key in kinds if key in operations}


def devices_of(variable: Any, strategy: Any) -> tuple[str, ...]:
    """The devices on which a variable's copies live, by their short names.

    Args:
        variable: A Keras or TensorFlow variable.
        strategy: The strategy under which it was made.
    """
    value = getattr(variable, "value", None)  # Keras 3 wraps TensorFlow's variable; on TensorFlow's own it is a method
    inner = variable if value is None or callable(value) else value
    return tuple(short(copy.device) for copy in strategy.experimental_local_results(inner))
