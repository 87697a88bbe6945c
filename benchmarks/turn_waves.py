"""Waves of processes that take turns: as many as a device's memory holds are up at the same time."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from typing import Sequence

from benchmarks.turns import Contender, Printer, Result, take_turns
from benchmarks.turns_options import Options

ROOT = pathlib.Path(__file__).resolve().parents[1]


def environ(**more: str) -> dict[str, str]:
    """The environment of a measured process: this one's, with memory that grows as it is needed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    common = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **common, "PYTHONPATH": path, **more}


def take_waves(
    waves: Sequence[Sequence[Contender]], options: Options, folder: pathlib.Path, say: Printer
) -> tuple[Result, list[Contender]]:
    """Measures wave after wave; time that one does not use is there for the later ones.

    Args:
        waves: Contenders that are up together.
        options: How turns are given; ``limit_seconds`` is for all waves, and ``groups`` is not looked at.
        folder: For logs.
        say: Is given each row as soon as it is known.
    """
    found, measured = Result(), []
    until = time.monotonic() + options.limit_seconds
    for number, wave in enumerate(waves):
        left = (until - time.monotonic()) / (len(waves) - number)
        part = take_turns(wave, dataclasses.replace(options, groups="together", limit_seconds=left), folder, say)
        measured += wave
        found.rows += part.rows
        for name in ("facts", "left_out", "profiles"):
            getattr(found, name).update(getattr(part, name))
        found.interrupted = part.interrupted
        if part.interrupted:
            break
    return found, measured
