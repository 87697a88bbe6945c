"""Verifies how gradients are reduced by TensorFlow's own collectives: how many there are, and what each asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from tfvolta.bridge.all_reduce_record import Reduction
from tfvolta.outcome import Outcome, Status
from tfvolta.strategy import communication
from tfvolta.strategy.communication import MIB

if TYPE_CHECKING:
    from tfvolta.bridge.base import GraphSummary
    from tfvolta.config.schema import Config

_OPERATION = "CollectiveReduce"


def expected_packs(sizes: Sequence[Optional[int]], pack_bytes: int) -> int:
    """Into how many packs TensorFlow puts tensors.

    They are taken in reverse, which is about the order in which the backward pass makes gradients; a pack is closed
    when it is larger than the size asked for.

    Args:
        sizes: Bytes of each tensor, in the order of the variables; None where the shape is not known.
        pack_bytes: Size asked for; 0 is one pack.

    Source: ``group_by_size`` in tensorflow/python/distribute/cross_device_utils.py.
    """
    if not sizes:
        return 0
    if not pack_bytes or any(size is None for size in sizes):
        return 1
    packs, filled = 1, 0
    for size in reversed(sizes):
        if filled > pack_bytes:
            packs, filled = packs + 1, 0
        filled += size or 0
    return packs


def verify_collectives(seen: Sequence[Reduction], config: Config, summary: GraphSummary, replicas: int) -> Outcome:
    """Whether the collectives in a traced train step are those that the config asks for.

    Args:
        seen: The reductions that went into the step's graphs.
        config: What was asked.
        summary: What the graphs contain.
        replicas: Replicas of all workers together.
    """
    size = communication.pack_bytes(config)
    largest = max(seen, key=lambda reduction: sum(each or 0 for each in reduction.sizes))
    packs = expected_packs(largest.sizes, size)
    hints = sorted({key[key.index("[") + 1 : -1] for key in summary.hints if key.startswith(_OPERATION)})
    observed = {
        "replicas": replicas,
        "gradients": len(largest.shapes),
        "gradient_bytes": sum(each or 0 for each in largest.sizes),
        "sparse_gradients": largest.sparse,
        "packs": packs,
        "pack_bytes": size,
        "expected": {_OPERATION: packs * largest.replicas},
        "counted": {key: number for key, number in largest.operations.items() if key.startswith(_OPERATION)},
        "hints": dict(summary.hints),
        "timeouts": list(summary.timeouts),
        "compiled": summary.must_compile,
    }
    wrong = [*_miscounted(seen, size), *_other_hints(hints, config), *_other_timeouts(summary, config)]
    if wrong:
        return Outcome(Status.NO_EFFECT, f"The traced train step has {'; '.join(wrong)}.", observed)
    return Outcome(Status.APPLIED, _sentence(largest, packs, hints, summary, replicas), observed)


def _miscounted(seen: Sequence[Reduction], size: int) -> list[str]:
    found = set()
    for reduction in seen:
        counted = sum(number for key, number in reduction.operations.items() if key.startswith(_OPERATION))
        expected = expected_packs(reduction.sizes, size) * reduction.replicas
        if counted != expected:
            found.add(f"{counted} {_OPERATION} instead of {expected}")
    return sorted(found)


def _other_hints(hints: Sequence[str], config: Config) -> list[str]:
    """Collectives that do not ask for the implementation of the config."""
    wanted = communication.implementation(config)
    others = [hint for hint in hints if hint != wanted]
    return [f"collectives that ask for {' and '.join(others)}, not {wanted}"] if wanted != "auto" and others else []


def _other_timeouts(summary: GraphSummary, config: Config) -> list[str]:
    wanted = config.get("communication.timeout_seconds")
    others = [limit for limit in summary.timeouts if wanted is not None and abs(limit - wanted) > 1e-3]
    return [f"collectives with a limit of {others[0]:g} s, not {wanted:g} s"] if others else []


def _sentence(largest: Reduction, packs: int, hints: Sequence[str], summary: GraphSummary, replicas: int) -> str:
    size = sum(each or 0 for each in largest.sizes) / MIB
    limit = max(summary.timeouts, default=0.0)
    text = (
        f"{len(largest.shapes)} gradients ({size:.3g} MiB) in {packs} pack{'s' * (packs != 1)} over {replicas}"
        f" replicas: the traced train step has {packs * largest.replicas} {_OPERATION} for them"
        + (" in each compiled replica" if summary.must_compile and largest.replicas == 1 and replicas > 1 else "")
        + (f", asking for {' and '.join(hints)}" if hints else "")
        + (f", each with a limit of {limit:g} s" if limit else "")
        + "."
    )
    if largest.sparse:
        text += f" Sparse gradients ({largest.sparse}) are gathered one by one and never packed."
    return text
