"""How gradients travel between replicas and ranks: plain values that the bridges take and hand out, and one hook.

The order in one update, the same on every Keras; each line is skipped where it was not asked for:

1. Gradients of earlier micro-batches of the window are added and the sum is divided by their number, in float32.
2. They are brought to the size of the scaled loss, cast to float16, and divided by ``AllReduce.ranks`` before that.
3. One all-reduce: the strategy's, or that of an ``AllReduce``.
4. They become float32 again; then the loss scale looks for infinities, the optimiser clips and updates.

An engine that is no ``tf.distribute`` strategy, such as Horovod, plugs in at step 3 and needs no optimiser of its own:

    def all_reduce(gradients):                    # called in replica context, eager or while a graph is traced
        return [hvd.allreduce(each, op=hvd.Sum) for each in gradients]

    bridge.set_reduction(model, ReductionSettings(all_reduce=AllReduce(all_reduce, ranks=hvd.size())))
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """An all-reduce in place of the strategy's.

    Attributes:
        sum_over_ranks: ``(gradients) -> gradients``: a list of tensors and ``tf.IndexedSlices`` without None, each to
            be returned as its sum over all ranks, in the same order and dtype. It is called once for each update, at
            the top level of the train step and never inside a condition, in the context of a replica. Sparse ones may
            be returned gathered or as a dense tensor. It must not average: the division happens before the call, so
            that a float16 sum does not overflow.
        ranks: Over how many ranks it sums. Keras divides a loss by the replicas of a strategy and knows nothing of
            ranks, so gradients are divided by this number first; the result is the average.
        compresses: Whether it changes the number format itself. The gradients then come as they are.
        name: For messages and evidence.
        prepare: ``(gradients, variables) -> gradients``: what is done before anything else, in the dtype in which
            gradients come, such as sparse ones made dense or their rows merged; None for nothing.
    """

    sum_over_ranks: Callable[[list[Any]], list[Any]]
    ranks: int = 1
    compresses: bool = False
    name: str = "all-reduce of its own"
    prepare: Optional[Callable[[list[Any], list[Any]], list[Any]]] = None


@dataclasses.dataclass(frozen=True)
class ReductionSettings:
    """What is asked of the reduction of gradients.

    Attributes:
        compression: ``fp16``: gradients travel as float16; None leaves them in the dtype of their variables.
        every: Batches whose gradients are averaged before one reduction and one update.
        all_reduce: In place of the strategy's; None keeps that.
    """

    compression: Optional[str] = None
    every: int = 1
    all_reduce: Optional[AllReduce] = None

    @property
    def changes(self) -> bool:
        """Whether anything is to be done otherwise than in plain Keras."""
        return self.compression is not None or self.every > 1 or self.all_reduce is not None


@dataclasses.dataclass(frozen=True)
class ReductionState:
    """What a model's reduction did so far in the present or last fit; kept in Python, so no device is read.

    Attributes:
        settings: What was asked.
        batches: Batches trained.
        updates: Calls of the optimiser, skipped ones included.
        pending: Batches whose gradients wait for the next update.
        gradient_bytes: Bytes of the gradients of one update in float32 (or the wider dtype that they have), as one
            replica holds them; None before the first trace. Sparse ones count with all their rows.
        wire_bytes: Bytes that one replica gives to the reduction in one update; 0 where nothing is reduced, None before
            the first trace and where the number of rows of a sparse gradient is open.
    """

    settings: ReductionSettings
    batches: int = 0
    updates: int = 0
    pending: int = 0
    gradient_bytes: Optional[int] = None
    wire_bytes: Optional[int] = None

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, for evidence; what waits at the end of a fit was not used."""
        return {
            "compression": self.settings.compression,
            "every": self.settings.every,
            "all_reduce": None if self.settings.all_reduce is None else self.settings.all_reduce.name,
            "batches": self.batches,
            "updates": self.updates,
            "unused_batches": self.pending,
            "gradient_bytes": self.gradient_bytes,
            "wire_bytes": self.wire_bytes,
        }


@dataclasses.dataclass(frozen=True)
class ReductionGraph:
    """The reducing operations in one traced train function.

    Attributes:
        operations: Those of the gradients by type and dtype, such as ``{"CollectiveReduceV2[float16]": 2}``, over all
            replicas that the graph holds.
        bytes: What they take in, in bytes of one replica; None where a shape is not known before the step runs.
        others: Collectives of other tensors (metrics, batch statistics, a loss scale's vote), likewise.
        other_bytes: Bytes of those.
    """

    operations: Mapping[str, int]
    bytes: Optional[int]
    others: Mapping[str, int]
    other_bytes: Optional[int]
