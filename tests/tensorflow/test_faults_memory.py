"""GPU memory: growth on all visible GPUs or none, GPU threads before the start, and statistics that are not there."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Iterator

import numpy as np
import pytest

import tfvolta
from tests.stack import STACK, keras, tf
from tests.tensorflow.forked import Forks
from tfvolta.callbacks import DeviceMemory
from tfvolta.config import load_config
from tfvolta.errors import LateError
from tfvolta.outcome import Status

# A fork for each case, since TensorFlow's devices start once; the GPUs are TensorFlow's own objects.
PRELUDE = """
import json, os, warnings
import tensorflow as tf
import tfvolta
from tensorflow.python.eager import context as eager
from tfvolta.errors import LateError, PlanError, TfvoltaError
runtime = eager.context()
runtime._initialize_physical_devices()
gpus = [eager.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(COUNT)]
runtime._physical_devices = list(runtime._physical_devices) + gpus
runtime._visible_device_list = list(runtime._visible_device_list) + gpus
runtime._memory_growth_map.update({device: None for device in gpus})
seen = {}
def growth():
    return [tf.config.experimental.get_memory_growth(gpu) for gpu in gpus]
def starts():
    try:
        tf.constant(1.0)
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def config(**devices):
    return tfvolta.load_config(run={"directory": os.environ["RUNS"]}, devices=devices)
"""


@pytest.fixture(scope="module", name="forks")
def _forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


def run(forks: Forks, tmp_path: pathlib.Path, count: int, code: str, **environ: str) -> dict[str, Any]:
    """What a fresh process with so many GPUs leaves in ``seen``."""
    body = f"COUNT = {count}\n{PRELUDE}\n{code}\nprint('SEEN', json.dumps(seen))"
    done = forks.run(body, RUNS=str(tmp_path), **environ)
    assert done.code == 0, done.err[-3000:]
    (line,) = [line for line in done.out.splitlines() if line.startswith("SEEN ")]
    seen: dict[str, Any] = json.loads(line[5:])
    return seen


def test_what_tensorflow_does_alone(forks: Forks, tmp_path: pathlib.Path) -> None:
    """The fault: growth on one GPU of two is accepted, and the first operation fails."""
    code = "tf.config.experimental.set_memory_growth(gpus[0], True)\nseen['start'] = starts()"
    assert "Memory growth cannot differ" in run(forks, tmp_path, 2, code)["start"]


@pytest.mark.parametrize(("count", "how"), [(0, "strategy"), (1, "callback"), (2, "strategy"), (3, "callback")])
def test_growth_on_every_gpu(forks: Forks, tmp_path: pathlib.Path, count: int, how: str) -> None:
    """Also where facts know of no GPU, as on this machine; also after the script set one of them."""
    code = """
if gpus:
    tf.config.experimental.set_memory_growth(gpus[-1], True)
"""
    code += {
        "callback": "seen['gpus'] = tfvolta.callbacks.MemoryGrowth().gpus",
        "strategy": "tfvolta.build_strategy(config(memory_growth=True)); seen['gpus'] = None",
    }[how]
    seen = run(forks, tmp_path, count, code + "\nseen['growth'], seen['start'] = growth(), starts()")
    assert seen["growth"] == [True] * count and seen["start"] == ""
    assert seen["gpus"] in (None, [f"/physical_device:GPU:{index}" for index in range(count)])


def test_growth_leaves_invisible_gpus_out_and_can_be_switched_off(forks: Forks, tmp_path: pathlib.Path) -> None:
    code = """
tf.config.set_visible_devices(gpus[1:], "GPU")
seen["gpus"] = tfvolta.callbacks.MemoryGrowth().gpus
seen["growth"] = growth()
seen["off"] = tfvolta.callbacks.MemoryGrowth(False).gpus
seen["after"] = growth()
seen["start"] = starts()
"""
    seen = run(forks, tmp_path, 3, code)
    assert seen["gpus"] == seen["off"] == ["/physical_device:GPU:1", "/physical_device:GPU:2"]
    assert seen["growth"] == [None, True, True] and seen["after"] == [None, False, False] and seen["start"] == ""


def test_growth_that_the_environment_contradicts_is_refused(forks: Forks, tmp_path: pathlib.Path) -> None:
    code = """
try:
    tfvolta.callbacks.MemoryGrowth()
except PlanError as error:
    seen["error"] = str(error)
seen["growth"] = growth()
seen["agreeing"] = tfvolta.callbacks.MemoryGrowth(False).gpus
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tfvolta.callbacks.MemoryGrowth(True, strict=False)
seen["warned"] = [str(warning.message) for warning in caught if issubclass(warning.category, Warning)]
"""
    seen = run(forks, tmp_path, 2, code, TF_FORCE_GPU_ALLOW_GROWTH="false")
    assert "TF_FORCE_GPU_ALLOW_GROWTH=false" in seen["error"] and seen["growth"] == [None, None]
    assert len(seen["agreeing"]) == 2
    assert any("TF_FORCE_GPU_ALLOW_GROWTH" in text for text in seen["warned"])


def test_growth_and_threads_that_come_too_late(forks: Forks, tmp_path: pathlib.Path) -> None:
    """GPU settings on a machine that has one, after the runtime started; the fake GPU appears only then."""
    code = """
from tests.pure.machines import machine
import tfvolta.facts.probe
stack = tfvolta.facts.probe.probe().stack
tfvolta.facts.probe.probe = lambda stack=stack: machine("v100_16gb", stack=stack)
runtime._visible_device_list = [device for device in runtime._visible_device_list if device not in gpus]
starts()
runtime._visible_device_list = list(runtime._visible_device_list) + gpus
for name, section in {
    "growth": {"memory_growth": True},
    "threads": {"gpu_thread_mode": "gpu_private", "gpu_threads": 2},
}.items():
    try:
        tfvolta.build_strategy(config(**section))
    except LateError as error:
        seen[name] = str(error)
seen["environment"] = [name for name in os.environ if name.startswith("TF_GPU_THREAD")]
seen["growth_set"] = growth()
"""
    seen = run(forks, tmp_path, 1, code)
    assert "before the first tensor" in seen["growth"] and "eager context was initialised" in seen["growth"]
    assert "gpu_thread_mode" in seen["threads"] and "gpu_threads" in seen["threads"]
    assert seen["environment"] == [] and seen["growth_set"] == [None]


# -- statistics


def fit(*callbacks: Any, epochs: int = 3) -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x = np.ones((8, 4), "float32")
    return model.fit(x, x[:, :1], epochs=epochs, verbose=0, callbacks=list(callbacks))


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, info: Any, reset: Any = None, count: int = 1) -> list[str]:
    """Lets the memory functions answer for GPUs that are not there; the questions asked."""
    asked: list[str] = []

    def answer(device: str) -> Any:
        asked.append(device)
        if isinstance(info, Exception):
            raise info
        return info(device)

    def resets(device: str) -> None:
        if reset is not None:
            raise reset

    names = [f"GPU:{index}" for index in range(count)]
    monkeypatch.setattr("tfvolta.callbacks.device_memory._gpus", lambda: names)
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", answer)
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", resets)
    return asked


def test_statistics_on_a_cpu() -> None:
    memory = DeviceMemory()
    history = fit(memory)
    assert len(history.history["loss"]) == 3 and len(memory.records) == 3
    assert memory.summary()["peak_bytes"] == {}
    assert memory.unavailable == {"all": "TensorFlow has no GPU in this process"}


ERRORS = [
    tf.errors.InternalError(None, None, "No allocator statistics"),
    tf.errors.InvalidArgumentError(None, None, "no such device"),
    ValueError("Allocator statistics not found for device 'GPU:0'"),
    RuntimeError("CUDA_ERROR"),
    KeyError("peak"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("which", ["both", "info", "reset"])
def test_statistics_that_raise(monkeypatch: pytest.MonkeyPatch, error: Exception, which: str) -> None:
    """Training goes on; None and the reason, once; nothing that looks like a measured zero."""
    info = error if which in ("both", "info") else lambda device: {"current": 1, "peak": 7}
    asked = pretend_gpus(monkeypatch, info, error if which in ("both", "reset") else None)
    memory = DeviceMemory()
    assert len(fit(memory).history["loss"]) == 3
    found = [record["devices"]["GPU:0"] for record in memory.records]
    if which == "reset":
        assert found == [{"current_bytes": 1, "peak_bytes": 7}] * 3
        assert type(error).__name__ in memory.unavailable["GPU:0 reset"]
    else:
        assert found == [None] * 3 and asked == ["GPU:0"]
        assert memory.summary()["peak_bytes"] == {"GPU:0": None}
        assert type(error).__name__ in memory.unavailable["GPU:0"]


@pytest.mark.parametrize("count", [1, 2])
def test_statistics_that_are_all_zero_are_no_statistics(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """An allocator without counters answers with zeros, for every GPU; one idle GPU beside a busy one is a true 0."""
    pretend_gpus(monkeypatch, lambda device: {"current": 0, "peak": 0}, count=count)
    memory = DeviceMemory()
    fit(memory)
    assert set(memory.summary()["peak_bytes"].values()) == {None}
    assert all("no statistics" in memory.unavailable[f"GPU:{index}"] for index in range(count))
    pretend_gpus(monkeypatch, lambda device: {"current": 0, "peak": 0 if device == "GPU:1" else 5}, count=2)
    fit(memory)
    assert memory.summary()["peak_bytes"] == {"GPU:0": 5, "GPU:1": 0}


def test_a_second_fit_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = DeviceMemory()
    pretend_gpus(monkeypatch, ValueError("not yet"))
    fit(memory)
    pretend_gpus(monkeypatch, lambda device: {"current": 2, "peak": 3})
    fit(memory)
    assert memory.summary()["peak_bytes"] == {"GPU:0": 3} and memory.unavailable == {}


# -- the TF32 switch and late settings, in this process, whose runtime is up


def test_the_tf32_switch_is_no_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    from tests.pure.machines import machine
    from tfvolta.session import Session

    tf.constant(1.0)
    assert tf.config.experimental.tensor_float_32_execution_enabled()  # though no GPU is here
    for name, words in (("v100_16gb", "TF32: not available on this GPU"), ("cpu", "TF32: not available")):
        config = load_config(run={"directory": str(tmp_path)}, math={"tf32": False})
        session = Session(config, machine(name, stack=STACK))
        from tfvolta.phase import Phase

        session.enter(Phase.DEVICES)
        outcome = session.endings["tf32"].outcome
        assert outcome.status is Status.NOT_APPLICABLE and words in outcome.message


def test_threads_of_tensorflow_too_late(tmp_path: pathlib.Path) -> None:
    tf.constant(1.0)
    config = load_config(run={"directory": str(tmp_path)}, devices={"inter_op_threads": 3})
    with pytest.raises(LateError, match="before the first tensor"):
        tfvolta.build_strategy(config)
