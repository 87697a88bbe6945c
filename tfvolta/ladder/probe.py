"""What a rung's process looks at in ``fit``, the same on every rung."""

from __future__ import annotations

import time
from typing import Any, Mapping, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.script.run import ScriptRun
from tfvolta.session import Session


class Probe(Callback):
    """Times the first step of the script's first fit, takes the loss of each epoch, and ends a fit early where asked.

    Attributes:
        first_step_seconds: From the call of ``fit`` until the device was done with the first step: tracing, compiling
            and what settings do to the model are in it.
        loss: Of the last epoch; None before one ended.
    """

    def __init__(self, steps: Optional[int] = None):
        super().__init__()
        self.first_step_seconds: Optional[float] = None
        self.loss: Optional[float] = None
        self._steps, self._done, self._per_call = steps, 0, 1
        self._called = 0.0

    def fit_called(self) -> None:
        """Starts the clock and the count of a fit."""
        self._called, self._done = time.perf_counter(), 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Waits for the first step; later this is a comparison."""
        if not self._done:
            self._per_call = self.bridge.steps_per_execution(self.model)
        if self.first_step_seconds is None:
            self.bridge.step_counts(self.model)  # reading a variable waits for the device
            self.first_step_seconds = time.perf_counter() - self._called
        self._done += self._per_call
        if self._steps is not None and self._done >= self._steps:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Takes the loss, for which Keras has waited already."""
        loss = (logs or {}).get("loss")
        self.loss = None if loss is None else float(loss)


class ProbedRun(ScriptRun):
    """A script whose fits have a probe, behind the script's own callbacks."""

    def __init__(self, session: Session, probe: Probe):
        super().__init__(session)
        self._probe = probe

    def _fit_callbacks(self, model: Any, callbacks: Any, arguments: Mapping[str, Any]) -> Any:
        self._probe.fit_called()
        given = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
        return super()._fit_callbacks(model, [*given, self._probe], arguments)
