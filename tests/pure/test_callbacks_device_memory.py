from __future__ import annotations

import sys
import types
from typing import Any, Callable

import pytest

from tests.pure.callbacks_fakes import FakeBridge, FakeSession, Model, serve, start
from tfvolta.callbacks.device_memory import DeviceMemory


class FakeTensorFlow(types.ModuleType):
    """TensorFlow's memory functions over a table."""

    def __init__(self, gpus: int, info: Callable[[str], dict[str, int]], reset: Callable[[str], None]):
        super().__init__("tensorflow")
        devices = [types.SimpleNamespace(name=f"/device:GPU:{index}") for index in range(gpus)]
        self.questions: list[str] = []

        def get_memory_info(device: str) -> dict[str, int]:
            self.questions.append(device)
            return info(device)

        self.config = types.SimpleNamespace(
            list_logical_devices=lambda kind: devices if kind == "GPU" else [],
            experimental=types.SimpleNamespace(get_memory_info=get_memory_info, reset_memory_stats=reset),
        )


def fit(monkeypatch: pytest.MonkeyPatch, tensorflow: FakeTensorFlow, epochs: int, **arguments: Any) -> DeviceMemory:
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    serve(monkeypatch, FakeBridge())
    memory = DeviceMemory(**arguments)
    start(memory, Model())
    for epoch in range(epochs):
        memory.on_epoch_end(epoch)
    return memory


def no_statistics(device: str) -> Any:
    raise ValueError(f"Allocator statistics not found for device '{device}'\nmore")


def test_current_and_peak_of_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {"GPU:0": iter([300, 200]), "GPU:1": iter([10, 40])}
    resets: list[str] = []
    tensorflow = FakeTensorFlow(2, lambda device: {"current": 7, "peak": next(peaks[device])}, resets.append)
    session = FakeSession()
    memory = fit(monkeypatch, tensorflow, 2, session=session)
    assert memory.records[0] == {
        "epoch": 0,
        "devices": {
            "GPU:0": {"current_bytes": 7, "peak_bytes": 300},
            "GPU:1": {"current_bytes": 7, "peak_bytes": 10},
        },
    }
    assert memory.summary()["peak_bytes"] == {"GPU:0": 300, "GPU:1": 40}
    assert resets == ["GPU:0", "GPU:1"]
    assert session.measurements["memory"] == memory.summary()


def test_missing_statistics_are_none_with_the_reason_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow = FakeTensorFlow(1, no_statistics, no_statistics)
    memory = fit(monkeypatch, tensorflow, 3)
    assert [record["devices"] for record in memory.records] == [{"GPU:0": None}] * 3
    assert memory.summary()["peak_bytes"] == {"GPU:0": None}
    assert memory.unavailable["GPU:0"] == "ValueError: Allocator statistics not found for device 'GPU:0'"
    assert tensorflow.questions == ["GPU:0"]


def test_a_peak_of_zero_after_training_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fit(monkeypatch, FakeTensorFlow(1, lambda device: {"current": 0, "peak": 0}, lambda device: None), 1)
    assert memory.summary()["peak_bytes"] == {"GPU:0": None}
    assert "keeps no statistics" in memory.unavailable["GPU:0"]


def test_an_idle_gpu_next_to_a_busy_one_has_a_true_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {"GPU:0": 5, "GPU:1": 0}
    tensorflow = FakeTensorFlow(2, lambda device: {"current": 0, "peak": used[device]}, lambda device: None)
    assert fit(monkeypatch, tensorflow, 1).summary()["peak_bytes"] == {"GPU:0": 5, "GPU:1": 0}


def test_the_first_step_has_a_peak_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([900, 500, 600])
    resets: list[str] = []
    tensorflow = FakeTensorFlow(1, lambda device: {"current": 7, "peak": next(peaks)}, resets.append)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    serve(monkeypatch, FakeBridge())
    memory = DeviceMemory()
    start(memory, Model())
    for epoch in range(2):
        for batch in range(3):
            memory.on_train_batch_end(batch)
        memory.on_epoch_end(epoch)
    assert memory.first == {"GPU:0": {"current_bytes": 7, "peak_bytes": 900}}
    assert memory.steady == {"GPU:0": 600}
    assert memory.summary()["peak_bytes"] == {"GPU:0": 900}
    assert memory.summary()["first_step_peak_bytes"] == {"GPU:0": 900}
    assert resets == ["GPU:0", "GPU:0"]  # when the fit begins, and behind its first step
    start(memory, Model())
    assert memory.first == {} and memory.steady == {}


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fit(monkeypatch, FakeTensorFlow(0, no_statistics, no_statistics), 2)
    assert memory.summary() == {
        "peak_bytes": {},
        "first_step_peak_bytes": {},
        "unavailable": {"all": "TensorFlow has no GPU in this process"},
        "records": [{"epoch": 0, "devices": {}}, {"epoch": 1, "devices": {}}],
    }
