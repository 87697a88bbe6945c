"""What was traced and compiled in a fit, when, how long it took, for which shapes, and what did not get compiled."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.break_even import StepTime, break_even, step_time
from tfvolta.callbacks.compilation import Compilation
from tfvolta.callbacks.compile_watch import CompileWatch
from tfvolta.callbacks.model_key import model_key
from tfvolta.errors import RecompilationWarning
from tfvolta.evidence.earlier import earlier_compilations

if TYPE_CHECKING:
    from tfvolta.callbacks.throughput import Throughput
    from tfvolta.session import Session


class CompileLedger(Callback):
    """Notes each call in which the train or test function was traced or compiled by XLA.

    Traces are counted by TensorFlow. XLA compiles for each new combination of shapes: those of the batches are noted as
    they come, where the data leave a dimension open; that costs some tenths of a millisecond a batch (0.2 to 0.6
    were measured on two busy CPU cores), mostly while a step runs. Where they cannot be seen, as with data that a
    strategy divides, a slow call of a compiled step is noted as likely.

    A shape that is compiled anew after the first epoch, or more compilations than ``limit``, gives a
    ``RecompilationWarning`` with the part of the data, its shapes, and the lines that end it; once a fit.

    ``pays_off`` sets compile seconds against seconds saved in a step. The time of a step without XLA is that of the
    latest run of the same model in the run directory that was not compiled; without one nothing is said.

    Example:
        ``ledger = tfvolta.callbacks.CompileLedger()``, then ``model.fit(dataset, callbacks=[XlaJit(), ledger])`` and
        ``ledger.summary()["compilations"]``. It belongs behind ``Throughput``.

    Args:
        limit: Compilations of the train function in a fit that are taken as normal.
        session: Takes the figures into the evidence of a run.
        throughput: Times the steps; in the same fit, before this one.

    Attributes:
        alarms: Warnings of the present or last fit.
    """

    def __init__(
        self, limit: int = 4, session: Optional[Session] = None, throughput: Optional[Throughput] = None
    ) -> None:
        super().__init__()
        if limit < 1:
            raise ValueError(f"limit: expected at least 1, received {limit!r}")
        self.alarms: list[str] = []
        self._limit = limit
        self._session = session
        self._throughput = throughput
        self._watch: Optional[CompileWatch] = None
        self._fit = 0
        self._in_fit = False

    @property
    def entries(self) -> list[Compilation]:
        """What was traced or compiled in the present or last fit, in order."""
        return [] if self._watch is None else self._watch.entries

    def summary(self) -> dict[str, Any]:
        """Figures of the present or last fit as JSON values; empty before the first."""
        if self._watch is None:
            return {}
        jit, shapes = self.bridge.jit(self.model), self._watch.shapes
        own = None if self._throughput is None else step_time(self._throughput.summary(), "this run")
        key = model_key(self.bridge, self.model)
        plain = _earlier(self._session, key) if own is not None and jit.effective else None
        steps = (self.params.get("steps") or 0) * (self.params.get("epochs") or 0) or None
        seconds = sum(max(0.0, entry.seconds - (self._watch.fastest or 0.0)) for entry in self._watch.compiled)
        return {
            "fit": self._fit,
            "compiled": jit.effective,
            "not_compiled": None if jit.effective else _reason(self._session, jit.reason),
            "compilations": sum(entry.count for entry in self._watch.compiled),
            "compile_seconds": seconds,
            "traces": sum(entry.traced for entry in self.entries),
            "shapes": len(shapes.seen) if self._watch.shapes_seen else None,
            "shapes_not_seen": None if shapes is None else shapes.reason or None,
            "pays_off": break_even(seconds, own, plain, steps) if jit.effective else None,
            "step_seconds": None if own is None else own.seconds,
            "step_seconds_error": None if own is None else own.error,
            "model": key,
            "what": [str(entry) for entry in self.entries],
            "alarms": list(self.alarms),
            "entries": [entry.to_json() for entry in self.entries],
        }

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts the entries of a fit, before it makes its first iterator."""
        self.alarms = []
        self._fit += 1
        self._in_fit = True
        self._watch = CompileWatch(self.bridge, self.model, self._limit, self._tell)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Takes the number of the epoch."""
        if self._watch is not None:
            self._watch.begin_epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Reads the clock."""
        if self._watch is not None:
            self._watch.begin(batch)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Reads the clock, and looks at calls with new shapes and at slow ones."""
        if self._watch is not None:
            self._watch.end()

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Reads the clock; only inside a fit."""
        if self._watch is not None and self._in_fit:
            self._watch.begin(batch)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes a call of validation in which the test function was traced."""
        if self._watch is not None and self._in_fit:
            self._watch.end_test()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Puts the figures into the evidence."""
        if self._session is not None:
            self._session.measured("compilations", self.summary())

    def on_train_end(self, logs: Logs = None) -> None:
        """Ends the entries of the fit."""
        self._in_fit = False

    def _tell(self, text: str) -> None:
        self.alarms.append(text)
        if self._session is not None:
            self._session.recorder.warned(text)
        warnings.warn(text, RecompilationWarning, stacklevel=6)


def _reason(session: Optional[Session], keras_says: str) -> str:
    """Why the step is not compiled: the setting's own words where there is one."""
    ending = None if session is None else session.endings.get("jit")
    return ending.outcome.message if ending is not None else keras_says


def _earlier(session: Optional[Session], key: str) -> Optional[StepTime]:
    """The time of a step without XLA, of the latest run of the same model that has it."""
    earlier = None if session is None else earlier_compilations(session.config.run.directory, key, compiled=False)
    if earlier is None:
        return None
    run, found = earlier
    return StepTime(found["step_seconds"], found["step_seconds_error"], f"run {run}")
