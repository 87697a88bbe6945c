"""The process of a speed trial: runs the script until enough steps were timed, and says how far it is.

Started as ``python -m tfvolta.tune.speed_worker REQUEST``. The fit that is timed goes on for as many epochs as that
takes, without validation, and without the script's callbacks that would end it or write files. The process ends where
the last block ends: nothing of the script comes after it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Mapping

from tfvolta.bridge import bridge_for_stack
from tfvolta.config import load_config
from tfvolta.errors import TfvoltaError
from tfvolta.script.run import ScriptRun
from tfvolta.script.source import layers_named_in
from tfvolta.session import Origin, Session
from tfvolta.tune.model_traits import describe
from tfvolta.tune.pace import Pace
from tfvolta.tune.speed_request import Lines, SpeedRequest

_EPOCHS = 10**6
# Keras's callbacks that end a fit, or write what the user's own training is to write.
_LEFT_OUT = frozenset(
    {"EarlyStopping", "ModelCheckpoint", "BackupAndRestore", "CSVLogger", "TensorBoard", "RemoteMonitor"}
)


class TimedRun(ScriptRun):
    """A script of which one fit is timed.

    Attributes:
        pace: The callback of that fit.
    """

    def __init__(self, session: Session, request: SpeedRequest, lines: Lines):
        super().__init__(session)
        self._request, self._lines = request, lines
        self.pace = Pace(request, lines, self._done)
        self.alter_fit = self._for_long
        self._is_seeded = False

    def _before_layer(self, stack: str) -> None:
        """Seeds once more before the first layer: repeats have a seed each, also of a script that sets its own."""
        super()._before_layer(stack)
        if not self._is_seeded:
            self._is_seeded = True
            bridge_for_stack(stack).keras.utils.set_random_seed(self._request.seed)

    @property
    def _is_timed(self) -> bool:
        return self.fits == self._request.fit - 1

    def _for_long(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A fit that goes on until enough was timed, without validation."""
        if not self._is_timed:
            return arguments
        epochs = arguments.get("epochs") or 1
        self._lines.say("timed", epochs=epochs)
        return {**arguments, "epochs": max(epochs, _EPOCHS), "validation_freq": 2 * _EPOCHS}

    def _fit_callbacks(self, model: Any, callbacks: Any, arguments: Mapping[str, Any]) -> Any:
        if not self._is_timed:
            return super()._fit_callbacks(model, callbacks, arguments)
        given = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
        kept = [each for each in given if not _LEFT_OUT & {kind.__name__ for kind in type(each).__mro__}]
        left = sorted({type(each).__name__ for each in given if each not in kept})
        if left:
            self._lines.say("left out", callbacks=left)
        return super()._fit_callbacks(model, [*kept, self.pace], arguments)

    def _done(self, model: Any) -> None:
        """Ends the process: what the script would do after its training is no part of a trial."""
        self._lines.say("peaks", bytes=_peaks())
        if self._request.describe:
            self._lines.say("model", **describe(model))
        finish(self._lines, "measured")


def _peaks() -> dict[str, int]:
    from tfvolta.bridge.allocator_figures import gpu_figures

    return {name: figures["peak_bytes"] for name, figures in gpu_figures().items() if figures is not None}


def finish(lines: Lines, ending: str, reason: str = "") -> None:
    """Says how the trial ended, and ends the process at once."""
    lines.say("end", ending=ending, reason=reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run(request: SpeedRequest) -> None:
    """Runs the trial; does not return."""
    lines = Lines(request.lines)
    try:
        asked = load_config(request.config or "tfvolta:default", overrides=list(request.overrides))
        # A trial has a seed of its own, and neither goes on from a checkpoint nor leaves one.
        own = asked.run.model_copy(update={"seed": None})
        config = asked.model_copy(update={"checkpoint": None, "run": own})
        session = Session(config, origin=Origin(script_layers=layers_named_in(request.script), record=False))
    except TfvoltaError as error:
        finish(lines, "refused", str(error))
        return
    script = TimedRun(session, request, lines)
    try:
        script.run(request.script, request.arguments)
    except SystemExit as error:
        if error.code not in (None, 0):
            said = error.code if isinstance(error.code, str) else f"the script ended with exit code {error.code}"
            finish(lines, "crash", said)
    except BaseException as error:
        finish(lines, *_ending_of(script.error or error))
    if script.error is not None:
        finish(lines, *_ending_of(script.error))
    elif not script.fits:
        finish(lines, "refused", "the script never called Keras's model.fit")
    elif script.fits < request.fit:
        called = "once" if script.fits == 1 else f"{script.fits} times"
        finish(lines, "refused", f"the script called model.fit {called}, so there is no fit {request.fit} to time")
    else:
        finish(lines, "refused", "fit ended without calling its callbacks, so that nothing was timed")


def _ending_of(error: BaseException) -> tuple[str, str]:
    """What an error means for the trial."""
    from tfvolta.memory.exhaustion import is_exhaustion

    text = str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if is_exhaustion(type(error).__name__, text):
        return "out of memory", lines[0] if lines else type(error).__name__
    if isinstance(error, TfvoltaError):
        return "refused", text
    return "crash", f"{type(error).__name__}: {' '.join(lines[:2])}"


if __name__ == "__main__":
    run(SpeedRequest.read(Path(sys.argv[1])))
