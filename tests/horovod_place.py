"""Where the Horovod of this test process's TensorFlow lies: beside the environment, which itself has none."""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def horovod_folder() -> pathlib.Path:
    """The folder for ``PYTHONPATH``; skips the test, with the reason, where Horovod was not built.

    ``make test`` builds it; by hand: ``python tools/horovod.py keras2 keras3``.
    """
    name = pathlib.Path(sys.prefix).name
    place = ROOT / ".venv" / "horovod"
    folder, reason = place / name, place / f"{name}.txt"
    if reason.is_file():
        pytest.skip(reason.read_text().strip())
    stamp = folder / "tfvolta-stamp"
    if not stamp.is_file():
        pytest.skip(f"Horovod is not built for {name}: python tools/horovod.py {name}")
    version = importlib.metadata.version("tensorflow")
    if f"tensorflow-{version}-" not in stamp.read_text():
        pytest.skip(f"Horovod was built for {stamp.read_text()}, not for TensorFlow {version}")
    return folder
