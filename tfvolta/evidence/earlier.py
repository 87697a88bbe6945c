"""What an earlier run measured on the same model."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Union

from tfvolta.errors import EvidenceError
from tfvolta.evidence.reading import read, run_directories

_MOST = 50  # latest runs that are looked at


def earlier_compilations(
    directory: Union[str, os.PathLike[str]], model: str, compiled: bool
) -> Optional[tuple[str, Mapping[str, Any]]]:
    """The latest ``compilations`` of a run with the same model whose step was compiled, or was not, and was timed.

    Args:
        directory: Folder of runs.
        model: ``model`` of ``CompileLedger.summary()``: architecture, precision, batch, stack and devices.
        compiled: Whether the step was compiled by XLA.

    Returns:
        The id of the run and its measurement; None where there is none.
    """
    for folder in reversed(run_directories(directory)[-_MOST:]):
        try:
            evidence = read(folder)
        except EvidenceError:  # half-written, or of another version
            continue
        found = evidence.measurements.get("compilations")
        if not isinstance(found, dict) or found.get("model") != model or found.get("compiled") is not compiled:
            continue
        if found.get("step_seconds"):
            return evidence.run_id, found
    return None
