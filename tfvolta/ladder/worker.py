"""The process of a rung: runs the script with some sections of the config, and says where the evidence is.

Started as ``python -m tfvolta.ladder.worker REQUEST``. The script's exit code is that of the process.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from pathlib import Path
from typing import Any, Optional

from tfvolta.config import load_config
from tfvolta.errors import TfvoltaError
from tfvolta.ladder.probe import Probe, ProbedRun
from tfvolta.ladder.request import RungRequest
from tfvolta.ladder.rung import Rung, config_of
from tfvolta.script import failure
from tfvolta.script.source import layers_named_in
from tfvolta.session import Origin, Session


def run(request: RungRequest) -> None:
    """Runs the script and writes the answer; a plan that is refused is an answer too."""
    config = load_config(
        request.config or "tfvolta:default", overrides=request.overrides, run={"directory": request.directory}
    )
    origin = Origin(
        command=["tfvolta", "ladder", f"rung={request.rung}", request.script, *request.arguments],
        script=os.path.abspath(request.script),
        script_layers=layers_named_in(request.script),
    )
    try:
        session = Session(config_of(config, Rung(request.rung, request.sections)), origin=origin)
    except TfvoltaError as error:
        _answer(request, reason=str(error))
        return
    probe = Probe(request.steps)
    reason = _run(session, ProbedRun(session, probe), request)
    loss = probe.loss if probe.loss is None or math.isfinite(probe.loss) else str(probe.loss)
    _answer(
        request,
        reason=reason,
        evidence=session.recorder.path,
        first_step_seconds=probe.first_step_seconds,
        loss=loss,
        # Linux counts this in KiB. Source: getrusage(2).
        host_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _run(session: Session, script: ProbedRun, request: RungRequest) -> str:
    """Runs the script to its end; why that is no good one, or nothing."""
    error: Optional[BaseException] = None
    try:
        script.run(request.script, request.arguments)
    except SystemExit as caught:
        error = caught if caught.code not in (None, 0) else None
    except BaseException as caught:
        error = caught
        failure.show(failure.trim(caught, request.script))
    error = script.error or error or session.ledger.fault()
    if error is None:
        session.close("completed")
        return "" if script.fits else "the script never called model.fit in this process"
    session.close("failed", error)
    return f"{type(error).__name__}: {error}"


def _answer(request: RungRequest, **figures: Any) -> None:
    """Writes the answer, whole or not at all."""
    unfinished = Path(f"{request.answer}.unfinished")
    unfinished.write_text(json.dumps(figures), encoding="utf-8")
    unfinished.replace(request.answer)


def main() -> int:
    """The process."""
    run(RungRequest.read(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
