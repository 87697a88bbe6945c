"""Ranks that do the same: as many steps, gradients that are reduced, equal weights; an error on all ranks otherwise."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Optional, Sequence

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.ranks import differing, exchange, others_of
from tfvolta.errors import AuditWarning, ClusterError, Problem
from tfvolta.knobs.uneven import Uneven
from tfvolta.peers import HorovodPeers

if TYPE_CHECKING:
    from tfvolta.bridge.base import FitData
    from tfvolta.session import Session

_ENDED = -1
_SHOWN = 3


class RankCheck(Callback):
    """Compares Horovod's ranks when a fit begins and at the end of each epoch, so that none of them waits for ever.

    When a fit begins: every rank has the same number of steps an epoch, and an optimiser that reduces its gradients.
    At each epoch's end: trained weights are equal on all ranks, bit for bit. Between epochs: every rank goes on, or
    none. What is wrong is an error on all ranks, which names them.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.RankCheck()])`` after ``hvd.init()``.

    Args:
        uneven: ``error``, or ``cut``: ranks with more steps end their epochs with the rank that has fewest.
        weights: Whether weights are compared; it reads each of them once an epoch.
        session: Takes what was found into the evidence of a run.

    Raises:
        ClusterError: Ranks differ.
    """

    def __init__(self, uneven: str = "error", weights: bool = True, session: Optional[Session] = None):
        super().__init__()
        if uneven not in ("error", "cut"):
            raise ValueError(f"uneven: expected error or cut, received {uneven!r}")
        self._uneven = uneven
        self._weights = weights
        self._session = session
        self._peers: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Compares what the ranks are about to do."""
        self._peers = others_of(self.model)
        if self._peers is None:
            return
        data = self.bridge.fit_data(self.model)
        batch = None if data is None else data.batch
        told = exchange(self._peers, {"steps": self._steps(data), "reduced": self._reduced(), "batch": batch})
        idle = [rank for rank, each in enumerate(told) if not each["reduced"]]
        if idle:
            raise ClusterError("Ranks would train models of their own.", [_not_distributed(idle, self._peers.size)])
        if isinstance(self._peers, HorovodPeers):
            self._agree(told)
        self._compare_steps([each["steps"] for each in told])

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """All ranks go on; one that has stopped says so in ``on_train_end``."""
        if self._peers is not None:
            self._meet(epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Compares the weights that were trained."""
        if self._peers is not None and self._weights:
            self._compare_weights(epoch)

    def on_train_end(self, logs: Logs = None) -> None:
        """Tells the others that this rank has ended."""
        if self._peers is not None:
            self._meet(_ENDED)
            self._peers = None

    def _steps(self, data: Optional[FitData]) -> Optional[int]:
        """Batches of an epoch.

        TensorFlow makes each batch of a worker's own data into as many as there are workers, and Keras has counted
        before that: its epoch would end with most rows unseen. It is made as long as the data are.
        """
        steps: Optional[int] = self.params.get("steps")
        if isinstance(self._peers, HorovodPeers) or steps is None or self.bridge.data_policy(self.model) != "off":
            return steps
        from tfvolta.bridge.epoch_length import end_epochs_after

        share = 0 if data is None or data.batch is None else data.batch // self._peers.size
        if data is None or data.rows is None or not share:
            self._warn(_half_seen(steps, self._peers.size))
            return steps
        rows = data.rows if data.remainder else steps * (data.batch or 0)
        whole = -(-rows // share)
        return whole if end_epochs_after(self.model, whole) else steps

    def _reduced(self) -> bool:
        from tfvolta.strategy.horovod_verification import distributed_by

        return not isinstance(self._peers, HorovodPeers) or bool(distributed_by(self.model))

    def _agree(self, told: Sequence[Any]) -> None:
        """Gives the reduction the batch size that all ranks have agreed on, for its choice of sparse or dense."""
        from tfvolta.bridge.horovod_reduction import reduction_of

        state = self.bridge.reduction(self.model)
        reduction = None if state is None else reduction_of(state.settings.all_reduce)
        batches = [each["batch"] for each in told]
        if reduction is not None and None not in batches:
            reduction.batch = max(batches)

    def _compare_steps(self, steps: list[Optional[int]]) -> None:
        if self._session is not None:
            self._session.context.saved[Uneven.name] = steps
        known = [each for each in steps if each is not None]
        if len(known) < len(steps):
            self._warn(_unknown(steps))
        elif differing(steps):
            if self._uneven == "error":
                raise ClusterError("Ranks have different numbers of batches.", [_uneven(steps)])
            self._cut(min(known), steps)

    def _cut(self, least: int, steps: list[Optional[int]]) -> None:
        from tfvolta.bridge.epoch_length import end_epochs_after

        done = least == self.params.get("steps") or end_epochs_after(self.model, least)
        if not all(self._peers.gather_one(int(done))):
            raise ClusterError("Ranks have different numbers of batches.", [_cannot_cut(steps)])
        self._warn(f"ranks have {steps} batches an epoch; every rank trains {least} of them (data.uneven: cut)")

    def _meet(self, epoch: int) -> None:
        epochs = self._peers.gather_one(epoch)
        if differing(epochs):
            self._peers = None
            raise ClusterError("Ranks have parted.", [_parted(epochs)])

    def _compare_weights(self, epoch: int) -> None:
        from tfvolta.bridge import horovod_ranks
        from tfvolta.bridge.shared_variables import trained_variables

        named = trained_variables(self.model)
        rows = self._peers.gather(horovod_ranks.checksums([variable for _, variable in named]))
        wrong = [name for place, (name, _) in enumerate(named) if differing([row[place] for row in rows])]
        if wrong:
            raise ClusterError("Weights differ between ranks.", [_diverged(wrong, len(named), epoch, rows)])
        if self._session is not None:
            self._session.measured("rank_check", {"equal_weights": len(named), "epochs": epoch + 1})

    def _warn(self, text: str) -> None:
        if self._session is not None:
            self._session.recorder.warned(text)
        if self._peers.is_chief:
            warnings.warn(text, AuditWarning, stacklevel=3)


def _not_distributed(ranks: list[int], size: int) -> Problem:
    return Problem(
        where=f"optimizer on rank {', '.join(map(str, ranks))}",
        expected=f"an optimizer that reduces its gradients over {size} ranks",
        received="a plain one: size() > 1 but the optimizer is not distributed",
        why="a model that Keras loads has a plain optimizer, whatever it was trained with; every rank would train by "
        "itself, without a word",
        fix="train under a config with strategy.kind: horovod, or with tfvolta.callbacks.Horovod() in fit's callbacks, "
        "before this one",
    )


def _uneven(steps: Sequence[Optional[int]]) -> Problem:
    return Problem(
        where="fit: batches an epoch",
        expected="the same number on every rank",
        received=f"{list(steps)}",
        why="every step waits for the gradients of all ranks: one that has a batch more waits for ever",
        fix="give every rank equally many, or pass steps_per_epoch; data.uneven: cut lets each rank train "
        f"{min(each for each in steps if each is not None)}",
    )


def _cannot_cut(steps: Sequence[Optional[int]]) -> Problem:
    return Problem(
        where="data.uneven: cut",
        expected="epochs that begin with the data anew",
        received=f"{list(steps)} batches an epoch, from steps_per_epoch",
        why="with steps_per_epoch one iterator serves all epochs, and what is left of one would begin the next",
        fix="pass the same steps_per_epoch on every rank",
    )


def _unknown(steps: Sequence[Optional[int]]) -> str:
    return (
        f"batches an epoch by rank: {list(steps)} (None: the data do not say). If one rank has fewer than the others, "
        "these wait for ever; pass steps_per_epoch, or set watchdog.stall_seconds to end what is stuck"
    )


def _half_seen(steps: int, workers: int) -> str:
    return (
        f"data.sharding: off, and the rows of this worker's data are not known: an epoch of {steps} steps sees about 1/"
        f"{workers} of them, since each batch becomes {workers} steps. Pass steps_per_epoch"
    )


def _parted(epochs: Sequence[int]) -> Problem:
    said = [f"rank {rank} {'has ended' if e == _ENDED else f'begins epoch {e + 1}'}" for rank, e in enumerate(epochs)]
    return Problem(
        where="fit: epochs",
        expected="every rank to begin the same epoch, or to end",
        received="; ".join(said),
        why="a callback stopped training on some ranks only, or fit was called with other epochs",
        fix="stop by a metric that is averaged (tfvolta.callbacks.AverageMetrics before the callback that stops)",
    )


def _diverged(wrong: list[str], count: int, epoch: int, rows: Sequence[Sequence[int]]) -> Problem:
    shown = ", ".join(wrong[:_SHOWN]) + (f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else "")
    return Problem(
        where=f"weights after epoch {epoch + 1}",
        expected=f"{count} trained weights equal on all {len(rows)} ranks",
        received=f"{len(wrong)} that differ: {shown}",
        why="ranks started differently, updated differently (a loss scale or an accumulation of each rank's own), or "
        "something changed weights on one rank",
        fix="put tfvolta.callbacks.BroadcastState() before training, and let one place reduce and scale gradients",
    )
