"""Runs every case on one of two Horovod ranks: ``horovodrun -np 2 python -m tests.processes.horovod_runs FOLDER``.

Each rank writes what it saw to a file of its own in the folder, so that one start of two processes serves many tests.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import pathlib
import sys
import time
import traceback
from typing import Any

CASE_SECONDS = 150.0
MODULES = (
    "tests.processes.horovod_training",
    "tests.processes.horovod_windows",
    "tests.processes.horovod_agreement",
    "tests.processes.horovod_numerics",
)


def main(folder: pathlib.Path, wanted: list[str]) -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    results: dict[str, Any] = {"size": hvd.size()}
    for module in MODULES:
        for name, case in importlib.import_module(module).CASES.items():
            if wanted and name not in wanted:
                continue
            faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)  # a rank that waits for ever says where
            started = time.perf_counter()
            try:
                results[name] = case(hvd.rank())
            except Exception:
                results[name] = {"error": traceback.format_exc()}
            results.setdefault("seconds", {})[name] = round(time.perf_counter() - started, 1)
            (folder / f"rank_{hvd.rank()}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
