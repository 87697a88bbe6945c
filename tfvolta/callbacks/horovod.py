"""Horovod for a model that is built and compiled already, as one callback."""

from __future__ import annotations

from typing import Any, Callable, Optional

from tfvolta.callbacks.base import Callback
from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.progress import Progress
from tfvolta.callbacks.single import session_of
from tfvolta.phase import Phase


class Horovod(Carrier):
    """Trains a compiled model over Horovod's ranks: gradients reduced, state sent, metrics averaged, ranks compared.

    The optimiser keeps its state, its class and its config: iterations and slots of a model that was trained or loaded
    go on, and what is saved loads in plain Keras. A loaded model is distributed again by this callback.

    Binds: when this object is made Horovod is initialised, and each rank is left one GPU. So make it before the first
    model, strategy or tensor. The optimiser is changed before the train step is traced.

    Example:
        ``horovod = tfvolta.callbacks.Horovod(compression="fp16")`` at the top of the script, and
        ``model.fit(dataset, callbacks=[horovod, ...])`` with it first in the list.

    Args:
        compression: ``fp16``: gradients travel as float16.
        groups: Groups of gradients, each reduced when all of it is there.
        sparse_as_dense: ``auto``, ``always`` or ``never``.
        average_metrics: Average the metrics of an epoch over the ranks.
        uneven: ``error``, or ``cut``: ranks with more batches end their epochs with the one that has fewest.
        strict: Whether what comes too late or changes nothing is an error instead of a warning.

    Raises:
        ConfigError: An argument is not accepted.
        PlanError: Horovod is not installed or of another TensorFlow, or there is no other rank.
    """

    def __init__(
        self,
        compression: Optional[str] = None,
        groups: Optional[int] = None,
        sparse_as_dense: str = "auto",
        average_metrics: bool = True,
        uneven: str = "error",
        strict: bool = True,
    ):
        communication = {"compression": compression, "groups": groups}
        sections: dict[str, Any] = {
            "strategy": {"kind": "horovod"},
            "horovod": {"sparse_as_dense": sparse_as_dense, "average_metrics": average_metrics},
            "data": {"uneven": uneven} if uneven != "error" else {},
            "communication": {name: given for name, given in communication.items() if given is not None},
        }
        super().__init__(session_of(strict, **{name: given for name, given in sections.items() if given}))
        self.session.enter(Phase.STRATEGY)
        self._parts = [*rank_callbacks(self.session, self), Progress(self.session)]

    def set_params(self, params: Any) -> None:
        """Hands what fit says about itself to the parts."""
        super().set_params(params)
        for part in self._parts:
            part.set_params(params)

    def set_model(self, model: Any) -> None:
        """Distributes the optimiser, then gives the parts the model."""
        super().set_model(model)
        for part in self._parts:
            part.set_model(model)


def _forwarded(hook: str) -> Callable[..., None]:
    """A hook that does what a carrier of settings does, and then what each part does."""

    def call(self: Horovod, *arguments: Any, **keywords: Any) -> None:
        getattr(Carrier, hook)(self, *arguments, **keywords)
        for part in self._parts:
            getattr(part, hook)(*arguments, **keywords)

    call.__name__ = hook
    call.__doc__ = getattr(Carrier, hook).__doc__
    return call


for _hook in (
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_begin",
    "on_test_batch_end",
    "on_test_end",
    "on_epoch_end",
    "on_train_end",
):
    setattr(Horovod, _hook, _forwarded(_hook))


def rank_callbacks(session: Any, inside: Optional[Callback] = None) -> list[Callback]:
    """What a session with ``strategy.kind: horovod`` adds to a fit, in this order; nothing under another kind.

    Args:
        session: The open session of the config.
        inside: The callback in fit's list that calls these; None where they are in the list themselves.
    """
    from tfvolta.callbacks.average_metrics import AverageMetrics
    from tfvolta.callbacks.broadcast_state import BroadcastState
    from tfvolta.callbacks.first_rank_output import FirstRankOutput
    from tfvolta.callbacks.rank_check import RankCheck

    config = session.config
    if config.get("strategy.kind") != "horovod":
        return []
    made: list[Callback] = [
        FirstRankOutput(session, inside),
        RankCheck(config.get("data.uneven") or "error", session=session),
        BroadcastState(session),
    ]
    averages = config.horovod is None or config.horovod.average_metrics
    return [*made, AverageMetrics()] if averages else made
