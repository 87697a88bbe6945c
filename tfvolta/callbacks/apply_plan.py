"""A whole config's settings, carried into ``fit``."""

from __future__ import annotations

import math
from typing import Any

from tfvolta.bridge.tensorflow_private import global_seed
from tfvolta.callbacks.base import Logs
from tfvolta.callbacks.carrier import Carrier
from tfvolta.session.fit_end import end_fit

_MOST_EPOCHS = 1000


class ApplyPlan(Carrier):
    """Applies the fit-time part of a session's plan to the model given to ``fit``, and verifies it once traced.

    Example:
        ``model.fit(dataset, callbacks=tfvolta.build_callbacks(config))`` puts it first in the list.

    Args:
        session: An open session of the config.
    """

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts the losses of a fit, and notes the seed in force, which the script may have set itself."""
        self._losses: dict[str, Any] = {}
        self._seed = global_seed()
        super().on_train_begin(logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Keeps the loss of the epoch, to which a later run can be held."""
        super().on_epoch_end(epoch, logs)
        found = _last_loss(logs)
        if found and len(self._losses) < _MOST_EPOCHS:
            self._losses[str(epoch)] = found["loss"]

    def on_train_end(self, logs: Logs = None) -> None:
        """Puts the fit into the evidence; a later fit replaces the measurements, not this."""
        self.end_windows()
        end_fit(self.session, self.model)
        fit = {"model": self.model.name, "class": type(self.model).__name__, "epochs": self.params.get("epochs")}
        self.session.recorder.fitted({**fit, **_last_loss(logs), "losses": dict(self._losses), "seed": self._seed})


def _last_loss(logs: Logs) -> dict[str, Any]:
    """The loss of the last epoch, for which Keras has waited already; a word where it is not finite."""
    try:
        loss = float((logs or {})["loss"])
    except (KeyError, TypeError, ValueError):
        return {}
    return {"loss": loss if math.isfinite(loss) else str(loss)}
