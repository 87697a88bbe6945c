"""The share of the step time that is spent waiting for data."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.checkpoint import Checkpoint
from tfvolta.callbacks.input_clock import InputClock
from tfvolta.callbacks.input_figures import InputFigures, remedy
from tfvolta.callbacks.saver import Saver
from tfvolta.errors import InputBoundWarning

if TYPE_CHECKING:
    from tfvolta.session import Session


class InputShare(Callback):
    """Says whether training waits for its data, for which share of the step time, and what would help first.

    Keras fetches a batch inside the train function, so that callbacks see no gap between batches however long it
    waits. Here a few batches of the first epoch are fetched before they are trained on, in their order, and the steps
    on them, which wait for nothing, are compared with the others. Nothing is trained twice or left out, and no data
    are read once more. It costs the making of a pipeline when fit begins (0.4 s), the reading of a few values from the
    device, and in the epochs until the figures are known 0.1 to 0.2 ms a batch (two busy CPU cores); of the figures are
    left out validation, the first two calls of a fit, and the first call of an epoch.

    Example:
        ``share = tfvolta.callbacks.InputShare()``, then ``model.fit(dataset, callbacks=[share])`` and
        ``share.summary()["share"]``.

    Args:
        warmup_steps: First steps of a fit that do not count.
        held_mb: Most memory for batches that are held, on the host.
        session: Takes the figures into the evidence of a run.

    Attributes:
        figures: What was measured of the present or last fit; None where nothing could be.
        reason: Why nothing was measured.
        remedy: What would help first where data are waited for.
    """

    def __init__(self, warmup_steps: int = 2, held_mb: int = 256, session: Optional[Session] = None):
        super().__init__()
        self.figures: Optional[InputFigures] = None
        self.reason = "no fit has ended"
        self.remedy = ""
        self._warmup_steps = warmup_steps
        self._held_bytes = held_mb * 2**20
        self._session = session
        self._clock: Optional[InputClock] = None

    def summary(self) -> dict[str, Any]:
        """The figures as JSON values, with the diagnosis in words."""
        if self.figures is None:
            return {"bound": None, "share": None, "diagnosis": f"Not measured: {self.reason}."}
        return {**self.figures.to_json(), "diagnosis": self.figures.sentence(), "first_remedy": self.remedy or None}

    def on_train_begin(self, logs: Logs = None) -> None:
        """Puts a data set that can hold batches in the place of the one that fit iterates."""
        from tfvolta.bridge import fit_input

        self.bridge.mend(self.model)
        self.figures, self.remedy = None, ""
        found, self.reason = fit_input.of_fit(self.model)
        if found is not None and self._is_saved(fit_input.callbacks(self.model)):
            found, self.reason = None, "checkpoints hold the place in the data, which another pipeline would not find"
        self._clock = None
        if found is not None:
            self.reason = "fit was too short: it takes some steps after the first two"
            per_call = self.bridge.steps_per_execution(self.model)
            self._clock = InputClock(found, per_call, self._warmup_steps, self._held_bytes, self._wait_for_device)
        elif self._session is not None:
            self._session.measured("input", self.summary())

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Starts an epoch."""
        if self._clock is not None:
            self._clock.start_epoch(self.params.get("steps"))

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Reads the clock while the warm-up lasts."""
        if self._clock is not None:
            self._clock.begin(time.time())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts the call; once or twice in a fit it also reads a value from the device."""
        if self._clock is not None:
            self._clock.end(batch)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Inside an epoch this is validation: training has ended."""
        if self._clock is not None:
            self._clock.end_epoch()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Takes the figures that are known; once they are, the next epoch iterates the script's data set itself."""
        if self._clock is None:
            return
        self._clock.end_epoch()
        self.figures = self._clock.figures() or self.figures
        if self._clock.is_finished:
            self._clock.close()
            self._report()
            self._clock = None

    def on_train_end(self, logs: Logs = None) -> None:
        """Says what was found where the fit ended before everything was measured."""
        if self._clock is not None:
            self._clock.close()
            self._report()
            self._clock = None

    def _is_saved(self, callbacks: list[Any]) -> bool:
        """Whether a checkpoint takes in the state of the data's iterator, which is that of one pipeline only."""
        stream = self.bridge.fit_stream(self.model)
        needed = stream is not None and stream.kind == "dataset" and (stream.whole_fit or stream.order == "unseeded")
        return needed and any(isinstance(each, (Saver, Checkpoint)) for each in callbacks)

    def _wait_for_device(self) -> None:
        if self.bridge.examples_seen(self.model) is None:
            self.bridge.step_counts(self.model)

    def _report(self) -> None:
        from tfvolta.bridge import fit_input, pipeline

        figures = self.figures
        if figures is not None and figures.bound == "input" and self._clock is not None:
            source = self._clock.source
            made = fit_input.given(self.model)[0]
            self.remedy = remedy(pipeline.describe(source.dataset if made is None else made), source.kind, figures)
            first = f" First remedy: {self.remedy}." if self.remedy else ""
            text = f"{figures.sentence()}{first}"
            if self._session is not None:
                self._session.recorder.warned(text)
            warnings.warn(text, InputBoundWarning, stacklevel=2)
        if self._session is not None:
            self._session.measured("input", self.summary())
