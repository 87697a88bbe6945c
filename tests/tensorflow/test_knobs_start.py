"""Knobs that bind when TensorFlow starts, each in a fork of its own, against the real TensorFlow."""

from __future__ import annotations

import json
from typing import Any, Iterator

import pytest

from tests.stack import STACK
from tests.tensorflow.forked import Forks

PRELUDE = """
import json, os
import tensorflow as tf
from tests.pure.recorded_context import V100, machine
from tfvolta.config.schema import Config
from tfvolta.knobs.registry import knob, knobs_for
from tfvolta.session.context import LiveContext

STACK = os.environ["STACK_OF_TEST"]
seen = {}

def context_for(sections, facts=None):
    return LiveContext(Config.model_validate(sections), facts or machine(stack=STACK), environ=dict(os.environ))

def apply_all(context):
    for each, value in knobs_for(context.config):
        each.apply(value, context)

def verify_all(context):
    return {each.name: each.verify(value, context).to_json() for each, value in knobs_for(context.config)}

def undo_all(context):
    return {each.name: each.undo(context) for each, value in reversed(knobs_for(context.config))}
"""

FAKE_GPUS = """
from tensorflow.python.eager import context as eager
runtime = eager.context()
runtime._initialize_physical_devices()
gpus = [eager.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(3)]
runtime._physical_devices = list(runtime._physical_devices) + gpus
runtime._visible_device_list = list(runtime._visible_device_list) + gpus
runtime._memory_growth_map.update({device: None for device in gpus})
"""


@pytest.fixture(scope="module", name="forks")
def _forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


def run(forks: Forks, code: str, **environ: str) -> dict[str, Any]:
    """What a fresh process of this stack leaves in ``seen``."""
    done = forks.run(f"{PRELUDE}\n{code}\nprint('SEEN', json.dumps(seen))", STACK_OF_TEST=STACK, **environ)
    assert done.code == 0, done.err[-3000:]
    (line,) = [line for line in done.out.splitlines() if line.startswith("SEEN ")]
    seen: dict[str, Any] = json.loads(line[5:])
    return seen


def statuses(outcomes: dict[str, Any]) -> dict[str, str]:
    return {name: outcome["status"] for name, outcome in outcomes.items()}


def test_threads_logical_devices_seed_and_determinism(forks: Forks) -> None:
    seen = run(
        forks,
        """
context = context_for({
    "devices": {"inter_op_threads": 3, "intra_op_threads": 2},
    "strategy": {"kind": "mirrored", "logical_cpus": 2},
    "debug": {"deterministic": True},
    "run": {"seed": 11},
    "math": {"tf32": False},
})
from tfvolta.bridge import runtime, tensorflow_private
apply_all(context)
seen["undone"] = undo_all(context)
seen["after_undo"] = [
    tf.config.threading.get_inter_op_parallelism_threads(),
    tf.config.threading.get_intra_op_parallelism_threads(),
    tensorflow_private.op_determinism(),
    tf.config.experimental.tensor_float_32_execution_enabled(),
]
apply_all(context)
seen["before"] = verify_all(context)
seen["started_by_knobs"] = runtime.context_initialized()
seen["limits_before"] = tensorflow_private.device_memory_limits()
first = [float(value) for value in tf.random.uniform((2,))]
seen["logical"] = len(tf.config.list_logical_devices("CPU"))
seen["after"] = verify_all(context)
seen["limits"] = tensorflow_private.device_memory_limits()
seen["options"] = tensorflow_private.runtime_options()
for name, value in (("inter_op_threads", 3), ("intra_op_threads", 2)):
    knob(name).apply(value, context)  # TensorFlow would raise here; the knob looks first
errors = []
for name, value in (("inter_op_threads", 4), ("logical_cpus", 3)):
    try:
        knob(name).apply(value, context)
    except RuntimeError as error:
        errors.append(str(error))
seen["errors"] = errors
seen["late_undo"] = undo_all(context)
context.bridge.keras.utils.set_random_seed(11)
seen["repeats"] = first == [float(value) for value in tf.random.uniform((2,))]
""",
    )
    names = {"inter_op_threads", "intra_op_threads", "logical_cpus", "tf32", "determinism", "seed"}
    expected = dict.fromkeys(names, "APPLIED") | {"tf32": "NOT_APPLICABLE"}
    assert seen["undone"] == {name: name != "seed" for name in names}
    assert seen["after_undo"] == [0, 0, False, True]
    assert statuses(seen["before"]) == expected
    assert statuses(seen["after"]) == expected
    assert seen["started_by_knobs"] is False
    assert seen["limits_before"] == {}
    assert seen["logical"] == 2
    assert set(seen["limits"]) == {"CPU:0", "CPU:1"}
    assert all(limit > 0 for limit in seen["limits"].values())
    assert seen["options"] == {"inter_op_threads": 3, "intra_op_threads": 2, "allow_growth": False}
    if STACK != "keras2":  # TensorFlow 2.15 does not name the pool's threads
        assert seen["after"]["inter_op_threads"]["observed"]["tf_Compute"] >= 3
    assert len(seen["errors"]) == 2
    late = {"inter_op_threads": False, "intra_op_threads": False, "logical_cpus": False}
    assert {name: seen["late_undo"][name] for name in late} == late
    assert seen["repeats"] is True


def test_growth_and_visible_devices_on_several_gpus(forks: Forks) -> None:
    seen = run(
        forks,
        FAKE_GPUS
        + """
facts = machine(V100, 3, stack=STACK)
context = context_for({"devices": {"visible": [0, 2], "memory_growth": True}}, facts)
apply_all(context)
seen["outcomes"] = verify_all(context)
seen["growth"] = [tf.config.experimental.get_memory_growth(gpu) for gpu in gpus]
context.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "false"
seen["forced"] = knob("memory_growth").verify(True, context).to_json()
seen["undone"] = undo_all(context)
seen["visible"] = len(tf.config.get_visible_devices("GPU"))

context = context_for({"devices": {"visible": [7]}}, facts)
try:
    apply_all(context)
except ValueError as error:
    seen["refused"] = str(error)

context = context_for({"devices": {"memory_limit_mb": 4096}}, facts)
apply_all(context)
seen["limit"] = verify_all(context)
seen["limit_undone"] = undo_all(context)
tf.config.experimental.set_memory_growth(gpus[0], False)  # TensorFlow refuses this where a limit is left behind

context = context_for({"devices": {"visible": []}}, facts)
apply_all(context)
seen["hidden"] = verify_all(context)
tf.constant(1.0)
seen["hidden_running"] = verify_all(context)
""",
    )
    assert statuses(seen["outcomes"]) == {"visible_devices": "APPLIED", "memory_growth": "APPLIED"}
    assert seen["growth"] == [True, None, True]
    assert seen["forced"]["status"] == "NO_EFFECT"
    assert seen["undone"] == {"memory_growth": True, "visible_devices": True}
    assert seen["visible"] == 3
    assert "No GPU has index 7" in seen["refused"]
    assert statuses(seen["limit"]) == {"memory_limit": "APPLIED"}
    assert list(seen["limit"]["memory_limit"]["observed"]["limits_mb"].values()) == [4096] * 3
    assert seen["limit_undone"] == {"memory_limit": True}
    assert statuses(seen["hidden"]) == statuses(seen["hidden_running"]) == {"visible_devices": "APPLIED"}


def test_growth_on_every_gpu_lets_tensorflow_start_where_growth_on_one_does_not(forks: Forks) -> None:
    """TensorFlow compares the visible GPUs only when it starts."""
    code = (
        FAKE_GPUS
        + """
context = context_for({"devices": {"memory_growth": True}}, machine(V100, 3, stack=STACK))
if os.environ["ALL"] == "1":
    apply_all(context)
else:
    tf.config.experimental.set_memory_growth(gpus[0], True)
try:
    tf.constant(1.0)
    seen["error"] = ""
except ValueError as error:
    seen["error"] = str(error)
"""
    )
    assert run(forks, code, ALL="1")["error"] == ""
    assert "Memory growth cannot differ" in run(forks, code, ALL="0")["error"]


def test_auto_clustering_is_seen_in_the_optimised_graph(forks: Forks) -> None:
    code = """
context = context_for({"xla": {"jit": "clustering"}})
apply_all(context)
seen["outcomes"] = verify_all(context)
seen["undone"] = undo_all(context)
seen["afterwards"] = verify_all(context)
from tfvolta.bridge.tensorflow_private import clusters_in_probe
seen["clusters"] = clusters_in_probe("CPU:0")
"""
    with_flag = run(forks, code, TF_XLA_FLAGS="--tf_xla_cpu_global_jit")
    assert statuses(with_flag["outcomes"]) == {"auto_clustering": "APPLIED"}
    assert with_flag["outcomes"]["auto_clustering"]["observed"]["clusters"] >= 1
    assert with_flag["undone"] == {"auto_clustering": True}
    assert statuses(with_flag["afterwards"]) == {"auto_clustering": "NO_EFFECT"}
    assert with_flag["clusters"] == 0
    without = run(forks, code, TF_XLA_FLAGS="")
    assert statuses(without["outcomes"]) == {"auto_clustering": "NO_EFFECT"}
    assert "tf_xla_cpu_global_jit" in without["outcomes"]["auto_clustering"]["message"]
