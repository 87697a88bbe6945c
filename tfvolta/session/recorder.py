"""Keeps a session's evidence up to date on disk."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from typing import TYPE_CHECKING, Any, Mapping, Optional

from tfvolta.errors import EvidenceError, EvidenceWarning
from tfvolta.evidence.clock import now
from tfvolta.evidence.place import Place
from tfvolta.evidence.schema import ErrorRecord, Evidence
from tfvolta.evidence.store import EvidenceStore
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Phase
from tfvolta.plan import Plan, Step

if TYPE_CHECKING:
    from tfvolta.session.ending import Origin


# What is kept of each fit; the measurements themselves are those of the last one.
_FIT_FIGURES = {
    "throughput": ("steps", "examples_per_second", "timed_steps", "timed_seconds"),
    "loss_scale": ("scale", "applied", "skipped"),
}


class SilentRecorder:
    """Keeps nothing: for a single callback, which leaves no files behind."""

    path: Optional[str] = None

    def replanned(self, plan: Plan) -> None:
        """The plan was made again."""

    def ended(self, name: str, outcome: Outcome, seen_in: Phase, step: Optional[Step]) -> None:
        """A setting ended."""

    def measured(self, name: str, values: Mapping[str, Any]) -> None:
        """Something was measured."""

    def fitted(self, values: Mapping[str, Any]) -> None:
        """A fit ended."""

    def warned(self, text: str) -> None:
        """Something was found that the reader should know."""

    def undone(self, undone: Mapping[str, bool]) -> None:
        """Settings were taken back."""

    def write(self) -> None:
        """Nothing to write."""

    def close(self, status: str, error: Optional[BaseException]) -> None:
        """The session ended."""


class Recorder(SilentRecorder):
    """Writes one evidence file, anew whenever something became known, so that a killed run leaves the last state.

    Attributes:
        path: The evidence file in the run's folder.
    """

    def __init__(self, plan: Plan, origin: Origin, place: Optional[Place] = None):
        """Creates the run's folder and its first evidence.

        Args:
            plan: What will be done.
            origin: What is training.
            place: Which process of a run this is; one that trains alone when None.

        Raises:
            EvidenceError: The run directory cannot be created or written.
        """
        self._complained = False
        self._directory = os.path.abspath(os.path.expanduser(plan.config.run.directory))
        self._fields: dict[str, Any] = {
            "host": platform.node(),
            "command": tuple(origin.command or sys.argv),
            "script": origin.script,
            "cwd": os.getcwd(),
            "worker": _worker(place or Place()),
            "outcomes": {},
            "measurements": {},
            "fits": (),
            "warnings": (),
        }
        self.replanned(plan)
        self._open(EvidenceStore.claim(self._directory, place or Place()))
        self._store.write(Evidence.model_validate(self._fields))
        if (place or Place()).is_chief:
            self._keep_applied(plan, origin)

    def _keep_applied(self, plan: Plan, origin: Origin) -> None:
        """Puts the config's text and the state of the project beside the evidence; a full disk stops no training."""
        from tfvolta.history.keeping import keep

        try:
            keep(self._store.directory, self._store.run_id, plan.config.given, origin.script, plan.facts)
        except OSError as error:
            self._complained = True
            text = f"Training goes on, and this run cannot be gone back to: its config is not kept ({error})."
            warnings.warn(text, EvidenceWarning, stacklevel=5)

    def replanned(self, plan: Plan) -> None:
        """Takes a plan; steps that have not ended are PENDING."""
        steps = [step.to_json() for step in plan.steps]
        for step in plan.steps:
            pending = {"status": Status.PENDING, "message": "not reached yet"}
            self._fields["outcomes"].setdefault(step.knob.name, pending)
        self._fields.update(
            config={
                "values": plan.config.model_dump(),
                "provenance": {key: str(origin) for key, origin in plan.config.provenance.items()},
            },
            facts=plan.facts,
            stack=plan.facts.stack,
            versions=dict(plan.facts.packages),
            plan=steps,
            conflicts=plan.conflicts,
            contradictions=plan.contradictions,
        )

    def ended(self, name: str, outcome: Outcome, seen_in: Phase, step: Optional[Step]) -> None:
        """Takes how a setting ended; ``write`` puts it on disk."""
        former = self._fields["outcomes"].get(name, {})
        applied = outcome.status in (Status.APPLIED, Status.UNVERIFIABLE)
        self._fields["outcomes"][name] = {
            **outcome.to_json(),
            "phase": seen_in.label,
            "applied_at": former.get("applied_at") or (now() if applied else None),
            "value": step.to_json()["value"] if step is not None else None,
        }

    def measured(self, name: str, values: Mapping[str, Any]) -> None:
        """Takes a measurement and writes."""
        self._fields["measurements"][name] = dict(values)
        self.write()

    def fitted(self, values: Mapping[str, Any]) -> None:
        """Takes what a fit was, adds the main figures of its monitors, and writes."""
        figures = {
            key: self._fields["measurements"].get(name, {}).get(key)
            for name, keys in _FIT_FIGURES.items()
            for key in keys
        }
        self._fields["fits"] = (*self._fields["fits"], {**values, **figures})
        self.write()

    def warned(self, text: str) -> None:
        """Takes a warning, once, and writes."""
        if text not in self._fields["warnings"]:
            self._fields["warnings"] = (*self._fields["warnings"], text)
            self.write()

    def undone(self, undone: Mapping[str, bool]) -> None:
        """Takes what was taken back, and writes."""
        self.measured("undone", dict(undone))

    def write(self) -> None:
        """Puts the present state on disk, whole. A disk that fails is no reason to stop training."""
        if os.getpid() != self._fields["pid"]:
            self._move_to_child()
        try:
            self._store.write(Evidence.model_validate(self._fields))
        except EvidenceError as error:
            if not self._complained:
                self._complained = True
                warnings.warn(f"Training goes on without it. {error}", EvidenceWarning, stacklevel=3)

    def _move_to_child(self) -> None:
        """Gives a forked process a run of its own, so that parent and child do not overwrite each other's evidence."""
        from multiprocessing.util import Finalize

        self._open(EvidenceStore.create(self._directory))
        # A child of multiprocessing ends without atexit; an error that ended it is printed by multiprocessing.
        Finalize(self, self.close, args=("completed", None), exitpriority=0)

    def _open(self, store: EvidenceStore) -> None:
        self._store = store
        self.path = str(self._store.path)
        self._fields.update(run_id=self._store.run_id, started=now(), pid=os.getpid())

    def close(self, status: str, error: Optional[BaseException]) -> None:
        """Takes the end of the run, and writes."""
        self._fields.update(status=status, ended=now(), error=ErrorRecord.of(error) if error is not None else None)
        self.write()


def _worker(place: Place) -> Optional[dict[str, Any]]:
    """Which process of several this is; None for one that trains alone."""
    if not place.worker:
        return None
    return {
        "name": place.worker,
        "rank": place.rank,
        "workers": place.workers,
        "is_chief": place.is_chief,
        "restart": place.restart,
    }
