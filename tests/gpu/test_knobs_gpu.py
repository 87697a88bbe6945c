"""Knobs whose behaviour only a GPU shows. Skips itself, and says so, where there is none.

``python -m tests.gpu.test_knobs_gpu`` runs it without pytest and prints what each knob saw.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.tensorflow.test_knobs_start import run

FACTS = """
from tfvolta.facts.probe import probe
facts = probe(stack=STACK)
"""


def has_gpu() -> bool:
    """Whether nvidia-smi names a GPU."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except OSError:
        return False
    return listed.returncode == 0 and "GPU 0" in listed.stdout


try:
    import pytest

    pytestmark = pytest.mark.skipif(not has_gpu(), reason="no GPU here: nvidia-smi names none")
except ImportError:  # run as a program on a host without pytest
    pass


def started() -> dict[str, Any]:
    """Outcomes of everything that binds at the start of TensorFlow on a GPU."""
    return run(
        FACTS
        + """
context = context_for({
    "devices": {"gpu_thread_mode": "gpu_private", "gpu_threads": 3, "visible": [0], "memory_limit_mb": 4096},
    "math": {"tf32": False},
}, facts)
context.environ = os.environ
apply_all(context)
seen["before"] = verify_all(context)
x = tf.random.uniform((64, 64))
float(tf.reduce_sum(x @ x))
seen["after"] = verify_all(context)
knob("tf32").apply(True, context)
seen["tf32"] = knob("tf32").verify(True, context).to_json()
from tfvolta.bridge import runtime
seen["names"] = sorted({name for name in runtime.thread_names() if "gpu" in name})
"""
    )


def graphs() -> dict[str, Any]:
    """Outcomes of what shows in optimised graphs on a GPU."""
    return run(
        FACTS
        + """
context = context_for({"graph": {"layout_optimizer": False}}, facts)
apply_all(context)
seen["off"] = verify_all(context)
context = context_for({"graph": {"layout_optimizer": True}}, facts)
apply_all(context)
seen["on"] = verify_all(context)
context = context_for({"xla": {"jit": "clustering"}}, facts)
apply_all(context)
seen["clustering"] = verify_all(context)
""",
    )


def _statuses(outcomes: dict[str, Any]) -> dict[str, str]:
    return {name: outcome["status"] for name, outcome in outcomes.items()}


def test_start_of_tensorflow() -> None:
    seen = started()
    assert _statuses(seen["before"])["gpu_thread_mode"] == "PENDING"
    after = dict.fromkeys(("visible_devices", "memory_limit"), "APPLIED")
    after |= dict.fromkeys(("gpu_thread_mode", "gpu_threads"), "UNVERIFIABLE")
    found = _statuses(seen["after"])
    assert {name: found[name] for name in after} == after, seen
    assert found["tf32"] in ("APPLIED", "NOT_APPLICABLE"), seen
    assert seen["tf32"]["status"] == found["tf32"], seen
    # The day on which TensorFlow names this pool within Linux's 15 characters, its threads can be counted.
    assert seen["names"] == []


def test_optimised_graphs() -> None:
    seen = graphs()
    assert _statuses(seen["off"]) == {"layout_optimizer": "APPLIED"}, seen
    assert _statuses(seen["on"]) == {"layout_optimizer": "APPLIED"}, seen
    assert _statuses(seen["clustering"]) == {"auto_clustering": "APPLIED"}, seen


if __name__ == "__main__":
    if not has_gpu():
        sys.exit("no GPU here: nvidia-smi names none")
    for check in (started, graphs):
        print(check.__name__, json.dumps(check(), indent=1))
    test_start_of_tensorflow()
    test_optimised_graphs()
    print("all as expected")
