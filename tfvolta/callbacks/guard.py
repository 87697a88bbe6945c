"""Holds a fit to an earlier run of the script: its throughput while it runs, its loss at the end of each epoch."""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Optional

from tfvolta.bridge.tensorflow_private import global_seed
from tfvolta.callbacks.base import Callback, Logs
from tfvolta.config.guarding import Guard as Asked
from tfvolta.errors import GuardWarning, TfvoltaError
from tfvolta.history.baseline import find_baseline
from tfvolta.history.going_back import go_back
from tfvolta.history.holding import Finding, Holding
from tfvolta.history.pace import Pace
from tfvolta.knobs import guard as knob
from tfvolta.peers import Alone, Peers, peers_of

if TYPE_CHECKING:
    from tfvolta.session import Session


class Guard(Callback):
    """Reports, stops or goes back when throughput or loss leave those of an earlier run.

    A batch costs a few comparisons; the clock is read once a window of steps, and nothing waits for the device.
    Several processes stop together, since the first one's word goes to all at the end of a window.

    Args:
        session: Its config has the section ``guard``; it knows the folder of runs, and takes what is seen.
        fits_before: Fits of this run that had callbacks of their own.
    """

    def __init__(self, session: Session, fits_before: int = 0):
        super().__init__()
        self._session = session
        self._asked = session.config.guard or Asked()
        self._pace = Pace(self._asked.every_steps, session.config.monitor.warmup_steps)
        self._holding: Optional[Holding] = None
        self._held = knob.Held()
        self._peers: Peers = Alone()
        self._number = fits_before
        self._epoch = self._batches = self._traces = 0
        self._per_call = 1

    def on_train_begin(self, logs: Logs = None) -> None:
        """Finds the earlier run, once, and starts the figures of a fit."""
        self._number += 1
        self._peers = peers_of(self.model)
        self._holding = self._holding or self._look_up()
        self._holding.start_fit(self._number, global_seed())
        self._held = knob.Held(self._holding.run_id, self._holding.why_not)
        self._session.context.saved[knob.Guard.name] = self._held
        self._pace.start_fit()
        self._traces = self.bridge.trace_count(self.model)
        self._per_call = self.bridge.steps_per_execution(self.model)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """The clock goes on."""
        self._epoch, self._batches = epoch, 0
        self._pace.start_epoch(perf_counter())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts, and looks when a window is full."""
        if not self._batches:  # an epoch that goes on from a checkpoint does not begin with batch 0
            self._pace.skip(max(0, batch + 1 - self._per_call))
        self._batches = batch + 1
        if self._pace.is_due(self._batches) and self._pace.ended(self._batches, perf_counter()):
            self._look_at_window(batch)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Validation is not timed."""
        self._pace.pause(self._batches, perf_counter())

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Compares the loss of the epoch."""
        self._pace.pause(self._batches, perf_counter())
        if self._holding is None:
            return
        loss = _loss(logs)
        if self.model.stop_training:  # perhaps in the middle of the epoch, whose mean is then another
            loss = None if loss is not None and math.isfinite(loss) else loss
        else:
            self._holding.epoch_had(self._batches, self._per_call)
        self._decide(self._holding.look_at_loss(epoch, loss, max(0, self._batches - 1)))

    def on_train_end(self, logs: Logs = None) -> None:
        """Goes back where that was asked for: fit is over. Puts what was seen into the evidence."""
        if self._holding is None:
            return
        self._holding.end_fit()
        if self._holding.findings and self._asked.action == "rollback":
            self._go_back(self._holding)
        self._report()

    def _look_up(self) -> Holding:
        """Finds the run that this one is held to."""
        path = self._session.recorder.path
        if path is None:
            return Holding(self._asked, None, "this process keeps no evidence")
        if not self._session.place.is_chief:
            return Holding(self._asked, None, "the first process compares for all")
        return Holding(self._asked, *find_baseline(Path(path).parent, self._asked.baseline))

    def _look_at_window(self, batch: int) -> None:
        """Compares the windows so far; one in which the step was traced again does not count."""
        traces = self.bridge.trace_count(self.model)
        if traces != self._traces:
            self._traces = traces
            self._pace.drop_last()
        if self._holding is not None:
            self._decide(self._holding.look_at_pace(self._pace, self._epoch, batch, self._examples))

    def _examples(self) -> Optional[int]:
        """Examples of the epoch so far; the count of several processes takes them all to read."""
        return None if self._peers.size > 1 else self.bridge.examples_seen(self.model)

    def _decide(self, finding: Optional[Finding]) -> None:
        """Says what is new, and stops all processes together where that is asked for."""
        self._held.looks += 1
        stops = finding is not None and self._asked.action != "report"
        if self._asked.action != "report" and self._peers.size > 1:  # one that stops alone leaves the others waiting
            stops = any(self._peers.gather_one(int(stops)))
        if stops:
            self.model.stop_training = True
        if finding is None or self._holding is None:
            return
        self._held.said = tuple(each.what for each in self._holding.findings)
        knob.settle(self._session.context)
        text = f"Epoch {finding.epoch}, batch {finding.batch}: {finding.what}.{' Training stops.' if stops else ''}"
        self._session.recorder.warned(text)
        self._report()
        warnings.warn(text, GuardWarning, stacklevel=4)

    def _go_back(self, holding: Holding) -> None:
        """Restores the earlier config file for the next start."""
        if holding.baseline is None or self._session.recorder.path is None:
            return
        try:
            back = go_back(Path(self._session.recorder.path).parent, holding.baseline.folder)
            text, holding.seen["rolled_back"] = back.sentence, back.to_json()
        except TfvoltaError as error:
            text, holding.seen["rolled_back"] = f"The config file is left as it is. {error}", None
        self._session.recorder.warned(text)
        print(f"tfvolta: {text}", file=sys.stderr, flush=True)

    def _report(self) -> None:
        if self._holding is None:
            return
        values = {
            "baseline": self._holding.run_id or None,
            "action": self._asked.action,
            "not_compared": dict(self._holding.not_compared),
            "tripped": [dataclasses.asdict(each) for each in self._holding.findings],
            **self._holding.seen,
        }
        self._session.measured("guard", values)


def _loss(logs: Logs) -> Optional[float]:
    try:
        return float((logs or {})["loss"])
    except (KeyError, TypeError, ValueError):
        return None
