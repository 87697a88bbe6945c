"""What the callbacks that carry settings share: they hand the model to a session, which knows the knobs."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from tfvolta.audit import audit_model, refuse
from tfvolta.bridge.worker_service import serve_present_workers
from tfvolta.callbacks.base import Callback, Logs
from tfvolta.errors import AuditWarning
from tfvolta.session.fit_end import end_fit

if TYPE_CHECKING:
    from tfvolta.session import Session

# Keras 2 times the batch hooks of a fit's first six calls and warns about slow ones. Looking at the traced graph
# takes longer than a small model's step, once; after those calls it raises no false alarm.
# Source: CallbackList._call_batch_end_hook in keras/src/callbacks.py of Keras 2.15.
_KERAS2_TIMED_CALLS = 6


class Carrier(Callback):
    """A callback whose settings are applied, verified and recorded by a session.

    Attributes:
        session: The session that holds the outcome of each setting.
    """

    def __init__(self, session: Session):
        super().__init__()
        serve_present_workers()
        self.session = session
        self._calls_until_verified = 0
        self._audit_again = False
        self._audited_data = False
        self._found: set[str] = set()
        self._said = ""

    def set_model(self, model: Any) -> None:
        """Applies what binds to a model, before the train step is traced.

        Raises:
            LateError: A setting came too late and the config is strict.
            NoEffectError: A setting changes nothing and the config is strict.
            PlanError: The model or its optimizer would be trained wrongly.
        """
        super().set_model(model)
        self.session.attach(model)
        # A subclassed model shows its layers and outputs from its first call on.
        self._audit_again = not getattr(model, "built", True)
        self._audit()
        self._calls_until_verified = 1 if self.bridge.stack == "keras3" else 1 + _KERAS2_TIMED_CALLS

    def on_train_begin(self, logs: Logs = None) -> None:
        """Lets settings look at the train step before it runs for the first time, and audits data that Keras 2 hid."""
        if not self._audited_data:
            self._audit()
        self.session.before_first_step(self.model)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Verifies by behaviour once the train step was traced; after that one comparison per call."""
        if self._calls_until_verified:
            self._calls_until_verified -= 1
            if not self._calls_until_verified:
                self._look_at_a_whole_window()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Verifies after a first epoch that was too short for the batch hook."""
        if self._calls_until_verified:
            self._look_at_a_whole_window()

    def on_train_end(self, logs: Logs = None) -> None:
        """Says in a line how the settings ended, once; ``tfvolta run`` prints a whole report instead."""
        self.end_windows()
        end_fit(self.session, self.model)
        says = self.session.origin.script is None and self.session.place.is_chief
        if says and self.session.ledger.summary() != self._said:
            self._said = self.session.ledger.summary()
            evidence = f"; evidence in {self.session.recorder.path}" if self.session.recorder.path else ""
            print(f"tfvolta: {self._said}{evidence}", file=sys.stderr)

    def end_windows(self) -> None:
        """Verifies what no whole window of batches has shown, and puts into the evidence what was left of the last."""
        if self._calls_until_verified:
            self._look()
        state = self.bridge.reduction(self.model)
        if state is None:
            return
        self.session.measured("reduction", state.to_json())
        if state.pending and not state.updates:
            text = (
                f"no weight was updated: this fit trained {state.batches} batches, and an update takes"
                f" {state.settings.every} (communication.reduce_every). Give it more batches, or a smaller reduce_every"
            )
            self.session.recorder.warned(text)
            warnings.warn(text, AuditWarning, stacklevel=3)

    def _look_at_a_whole_window(self) -> None:
        """Verifies, but not before the first update where that takes several batches: it is traced only then."""
        state = self.bridge.reduction(self.model)
        if state is not None and state.settings.every > 1 and not state.updates:
            self._calls_until_verified = 1
        else:
            self._look()

    def _look(self) -> None:
        self._calls_until_verified = 0
        self.session.step_traced(self.model)
        if self._audit_again:
            self._audit()

    def _audit(self) -> None:
        """Warns, once for each, of what makes training wrong or slow, and puts it into the evidence."""
        self._audited_data = self.bridge.fit_data(self.model) is not None
        settings = self.session.config.mixed_precision
        findings = audit_model(self.model, settings is not None and settings.policy != "float32")
        for finding in findings:
            text = str(finding)
            self.session.recorder.warned(text)
            if text not in self._found and not finding.refuses:
                self._found.add(text)
                warnings.warn(text, AuditWarning, stacklevel=3)
        refuse(*findings)
