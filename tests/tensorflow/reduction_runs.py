"""Trains small models whose gradients are reduced otherwise than in plain Keras, and prints what happened as JSON.

Run as ``python -m tests.tensorflow.reduction_runs REPLICAS PARTS FOLDER``: a process can split its CPU only once.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from typing import Any, Callable

from tests.stack import STACK
from tests.tensorflow import reduction_faults, reduction_training
from tests.tensorflow.reduction_models import ALONE, asked
from tfvolta import build_strategy

PARTS: dict[str, Callable[[Any], Any]] = {
    "session": reduction_faults.session,
    "windows": reduction_training.all_windows,
    "few windows": reduction_training.few_windows,
    "xla": reduction_training.compiled_by_xla,
    "hook": reduction_training.another_all_reduce,
    "cases": reduction_faults.reported_cases,
    "saved": reduction_faults.saved,
    "half": reduction_training.half,
    "numbers": reduction_faults.numbers,
    "steps": reduction_training.other_steps,
    "left over": reduction_training.left_over,
    "accumulation": reduction_faults.own_accumulation,
}


def main(replicas: int, without_merge_calls: bool, parts: list[str]) -> dict[str, Any]:
    """Everything with so many replicas on logical CPU devices."""
    strategy = build_strategy(asked(replicas)) if replicas > 1 else ALONE
    if without_merge_calls:  # as on GPUs in a step that XLA compiles
        strategy.extended._use_merge_call = lambda: False
    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    return {"stack": STACK, **{name: PARTS[name](strategy) for name in parts or PARTS}}


if __name__ == "__main__":
    try:
        arguments = sys.argv[2:]
        found = main(int(sys.argv[1]), "--without-merge-calls" in arguments, [p for p in arguments if p in PARTS])
        print("RESULT " + json.dumps(found))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
