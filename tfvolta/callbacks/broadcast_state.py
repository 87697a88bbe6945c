"""The same start on every rank: rank 0's weights and optimiser, before the first step."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.ranks import differing, exchange, others_of
from tfvolta.errors import ClusterError, Problem
from tfvolta.peers import Peers

if TYPE_CHECKING:
    from tfvolta.session import Session

_SHOWN = 3


class BroadcastState(Callback):
    """Gives every Horovod rank the weights and the optimiser's state of rank 0, before the first step of each fit.

    Slots, step counts, learning rate and loss scale are among it, so that a model that only rank 0 has loaded goes on
    alike on all ranks. Horovod's own callback does this after the first step, whose gradients then belong to different
    weights. States of random seeds stay each rank's own, so that ranks draw different dropout masks.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.BroadcastState()])`` after ``hvd.init()``.

    Args:
        session: Takes what was sent into the evidence of a run.

    Raises:
        ClusterError: Ranks have models or optimisers of different shapes, or there is nothing yet to be sent.
    """

    def __init__(self, session: Optional[Session] = None):
        super().__init__()
        self._session = session

    def on_train_begin(self, logs: Logs = None) -> None:
        """Sends right before the step that comes first, when all variables of the training exist."""
        peers = others_of(self.model)
        if peers is not None:
            self.bridge.before_first_step(self.model, lambda iterator: self._send(peers, iterator))

    def _send(self, peers: Peers, iterator: Any) -> None:
        from tfvolta.bridge import horovod_ranks
        from tfvolta.bridge.shared_variables import shared_variables

        self.bridge.trace_step(self.model, iterator)
        ready = self.bridge.create_training_variables(self.model)
        named = shared_variables(self.bridge, self.model) if ready else []
        self._compare(peers, named)
        horovod_ranks.broadcast([variable for _, variable in named])
        if self._session is not None:
            sent = {"variables": len(named), "bytes": sum(_bytes(variable) for _, variable in named)}
            self._session.measured("broadcast", {**sent, "ranks": peers.size})

    def _compare(self, peers: Peers, named: list[tuple[str, Any]]) -> None:
        """Refuses what would wait for ever: ranks that send different numbers of variables, or other shapes."""
        own = [[name, list(variable.shape), variable.dtype.name] for name, variable in named]
        check = zlib.crc32(repr([entry[1:] for entry in own]).encode())
        if not differing(peers.gather([len(own), check])):
            if own:
                return
            raise ClusterError("There is nothing to broadcast.", [_unbuilt(self.model)])
        raise ClusterError("Ranks train different models.", _differences(exchange(peers, own)))


def _bytes(variable: Any) -> int:
    elements = 1
    for size in variable.shape:
        elements *= int(size)
    return elements * int(variable.dtype.size)


def _unbuilt(model: Any) -> Problem:
    return Problem(
        where=f"model {model.name}",
        expected="a model whose variables exist before its first step",
        received="run_eagerly=True with a model that was never called",
        why="its weights come into being in the first step, when they should be equal on all ranks already",
        fix="call the model once, or model.build(input_shape), before fit",
    )


def _differences(ranks: list[Any]) -> list[Problem]:
    """The first variables that are not alike on all ranks."""
    longest = max(len(each) for each in ranks)
    rows = [[each[place] if place < len(each) else None for each in ranks] for place in range(longest)]
    different = [row for row in rows if differing([entry and entry[1:] for entry in row])]
    return [
        Problem(
            where=next(entry[0] for entry in row if entry is not None),
            expected="a variable of one shape on all ranks",
            received="; ".join(f"rank {rank}: {_shape(entry)}" for rank, entry in enumerate(row)),
            why="the value of rank 0 is given to all ranks before training",
            fix="make and compile the same model on every rank",
        )
        for row in different[:_SHOWN]
    ]


def _shape(entry: Any) -> str:
    return "none" if entry is None else f"{entry[2]} {tuple(entry[1])}"
