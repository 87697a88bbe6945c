"""The process of one trial: runs the script until a few steps were trained, and answers how that went.

Started as ``python -m tfvolta.tune.trial_worker REQUEST``.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import Any, Mapping, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.config import load_config
from tfvolta.data.rebatching import LargerThanDataError
from tfvolta.errors import TfvoltaError
from tfvolta.measure.statistics import median
from tfvolta.script.arguments import SCRIPT_BATCH
from tfvolta.script.run import ScriptRun
from tfvolta.script.source import layers_named_in
from tfvolta.session import Origin, Session
from tfvolta.tune.trial import Ending, Trained
from tfvolta.tune.trial_request import TrialRequest, write_answer


class TrialOver(BaseException):
    """Enough steps were trained; no ``except Exception`` of the script stops this."""


class Probe(Callback):
    """Times the steps of the first fit, and ends the script after enough of them.

    Attributes:
        step_seconds: Of each timed call of the train function.
        trained: Calls that were made.
        batches_per_call: Batches of a call.
        seen: What the script trains.
    """

    def __init__(self, request: TrialRequest):
        super().__init__()
        self.step_seconds: list[float] = []
        self.trained = 0
        self.batches_per_call = 1
        self.seen = Trained()
        self._warmup, self._steps = request.warmup_steps, request.steps
        self._began: Optional[float] = None

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Starts the clock of a step."""
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Waits for the step to be done on the device, and takes its time."""
        self.bridge.step_counts(self.model)
        if not self.trained:
            self.batches_per_call = self.bridge.steps_per_execution(self.model)
            self.seen = self._described()
        self.trained += 1
        if self._began is not None and self.trained > self._warmup:
            self.step_seconds.append(time.perf_counter() - self._began)
        if len(self.step_seconds) >= self._steps:
            raise TrialOver

    def _described(self) -> Trained:
        rate = self.bridge.learning_rate(self.model)
        return Trained(
            optimizer=type(self.bridge.inner_optimizer(self.model.optimizer)).__name__,
            learning_rate=None if rate is None else rate.value,
            has_schedule=rate is not None and bool(rate.schedule),
            replicas=int(self.model.distribute_strategy.num_replicas_in_sync),
            epochs=None if self.params.get("epochs") is None else int(self.params["epochs"]),
        )


class TrialRun(ScriptRun):
    """A script whose fits are timed by a probe."""

    def __init__(self, session: Session, probe: Probe):
        super().__init__(session)
        self._probe = probe

    def _fit_callbacks(self, model: Any, callbacks: Any, arguments: Mapping[str, Any]) -> Any:
        given = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
        return super()._fit_callbacks(model, [*given, self._probe], arguments)


def run(request: TrialRequest) -> None:
    """Runs a trial, and writes the answer."""
    overrides = [*request.overrides, f"fit.batch_size={request.batch}", "memory.on_oom=report"]
    try:
        asked = load_config(request.config or "tfvolta:default", overrides=overrides)
        config = asked.model_copy(update={"checkpoint": None})  # a trial neither goes on from one nor leaves one
        session = Session(config, origin=Origin(script_layers=layers_named_in(request.script), record=False))
    except TfvoltaError as error:
        write_answer(request.answer, Ending.REFUSED.value, reason=str(error))
        return
    probe = Probe(request)
    script = TrialRun(session, probe)
    try:
        script.run(request.script, request.arguments)
    except TrialOver:
        pass
    except SystemExit as error:
        if error.code not in (None, 0):
            write_answer(request.answer, Ending.CRASH.value, reason=f"the script ended with exit code {error.code}")
            return
    except BaseException as error:
        _failed(request, script.error or error)
        return
    _answer(request, probe, script)


def _answer(request: TrialRequest, probe: Probe, script: ScriptRun) -> None:
    if script.error is not None:
        _failed(request, script.error)
    elif not script.fits:
        write_answer(request.answer, Ending.REFUSED.value, reason="the script never called model.fit")
    elif not probe.trained:
        write_answer(request.answer, Ending.REFUSED.value, reason="fit trained no batch")
    else:
        rows = request.batch * probe.batches_per_call
        rate = rows / median(probe.step_seconds) if probe.step_seconds else None
        seen = dataclasses.replace(probe.seen, batch=script.session.context.saved.get(SCRIPT_BATCH))
        figures = {"steps": len(probe.step_seconds), "examples_per_second": rate, "peak_bytes": _peaks()}
        write_answer(request.answer, Ending.FITS.value, **figures, trained=dataclasses.asdict(seen))


def _peaks() -> dict[str, int]:
    """Peak memory of each GPU, where the allocator counts it."""
    from tfvolta.bridge.allocator_figures import gpu_figures

    return {name: figures["peak_bytes"] for name, figures in gpu_figures().items() if figures is not None}


def _failed(request: TrialRequest, error: BaseException) -> None:
    if isinstance(error, LargerThanDataError):
        reason = f"fit is given {error.rows} rows"
        write_answer(request.answer, Ending.LARGER_THAN_DATA.value, reason=reason, rows=error.rows)
    else:
        ending, reason = _ending_of(error)
        write_answer(request.answer, ending.value, reason=reason)


def _ending_of(error: BaseException) -> tuple[Ending, str]:
    """What an error of the script means for the trial."""
    from tfvolta.memory.exhaustion import is_exhaustion

    text = str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if is_exhaustion(type(error).__name__, text):
        return Ending.OUT_OF_MEMORY, first
    if isinstance(error, TfvoltaError):
        return Ending.REFUSED, text
    return Ending.CRASH, f"{type(error).__name__}: {' '.join(lines[:2])}"


def main() -> int:
    """The process."""
    run(TrialRequest.read(Path(sys.argv[1])))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a script's threads and its exit handlers are no part of the trial


if __name__ == "__main__":
    main()
