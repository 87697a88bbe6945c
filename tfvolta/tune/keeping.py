"""The files that a search leaves: its result, and the tuned config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional

from tfvolta.tune.plan_rules import resolved
from tfvolta.tune.result import FILE_NAME, TuneResult
from tfvolta.tune.tuned_config import Settings, tuned_path, tuned_text, write_tuned
from tfvolta.tune.verdict import ratio_text
from tfvolta.tune.write_fault import cannot_write


def keep(request: Any, result: TuneResult, output: Optional[str]) -> tuple[TuneResult, Path]:
    """Writes both.

    Args:
        request: ``tfvolta.tune.tune_request.TuneRequest``.
        result: What was found.
        output: Where the tuned config was asked for; None for its usual place.

    Returns:
        The result with the place of the tuned config, and its own place.

    Raises:
        TuneError: One of them cannot be written.
    """
    folder = request.directory / result.fingerprint
    if result.verdict == "gain" and result.best is not None:
        path = tuned_path(request.config, output, folder)
        _write_config(request, result, path)
        result = result.model_copy(update={"tuned_config": str(path)})
    path = folder / FILE_NAME
    unfinished = path.with_name(f".{FILE_NAME}.unfinished")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(result.model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    return result, path


def _write_config(request: Any, result: TuneResult, path: Path) -> None:
    assert result.best is not None
    words = tuple(f"{key}={value}" for key, value in result.best.settings.items())
    settings = Settings(request.config, tuple(request.overrides), resolved(words, {"batch": _batch(result)}))
    said = {}
    for row in result.ablation:
        buys = ratio_text(row.ratio) if row.ratio is not None else row.note
        said[row.setting] = f"{buys}: best over without it" if row.verdict == "gain" else f"{buys}: no gain measured"
    gpus = ", ".join(result.machine.gpus) or result.machine.cpu
    head = [
        f"Found by tfvolta tune, {result.created}, for {result.script} on {gpus}, {result.machine.stack}.",
        result.sentence,
        f"Measured again by: {result.reproduce}",
    ]
    write_tuned(path, tuned_text(settings, said, head, path), settings)


def _batch(result: TuneResult) -> Optional[int]:
    """Rows of the script's batch, from the steps and examples of the baseline."""
    examples, steps = result.baseline.examples_per_second, result.baseline.steps_per_second
    return round(examples / steps) if examples and steps else None
