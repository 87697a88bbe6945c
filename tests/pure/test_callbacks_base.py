from __future__ import annotations

import inspect
import subprocess
import sys
import warnings
from typing import Any

import pytest

import tfvolta.callbacks
from tests.pure.callbacks_fakes import FakeBridge, FakeSession, Model, serve
from tfvolta.bridge.reduction import ReductionSettings, ReductionState
from tfvolta.callbacks.apply_plan import ApplyPlan
from tfvolta.callbacks.base import Callback
from tfvolta.callbacks.device_memory import DeviceMemory
from tfvolta.callbacks.loss_scale_monitor import LossScaleMonitor
from tfvolta.callbacks.throughput import Throughput
from tfvolta.errors import BridgeError

PLAIN = [f"on_{mode}_{end}" for mode in ("train", "test", "predict") for end in ("begin", "end")]
NUMBERED = [
    *(f"on_{what}_{end}" for what in ("epoch", "batch") for end in ("begin", "end")),
    *(f"on_{mode}_batch_{end}" for mode in ("train", "test", "predict") for end in ("begin", "end")),
]


@pytest.mark.parametrize("hook", PLAIN)
def test_hooks_take_logs_by_name_and_position(hook: str) -> None:
    assert list(inspect.signature(getattr(Callback(), hook)).parameters) == ["logs"]
    getattr(Callback(), hook)()
    getattr(Callback(), hook)(logs={})


@pytest.mark.parametrize("hook", NUMBERED)
def test_numbered_hooks_take_a_number_and_logs(hook: str) -> None:
    assert list(inspect.signature(getattr(Callback(), hook)).parameters)[1] == "logs"
    getattr(Callback(), hook)(3)
    getattr(Callback(), hook)(3, logs={})


def test_overriding_hooks_is_seen() -> None:
    class Trains(Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...

    class Tests(Callback):
        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None: ...

    def implemented(callback: Callback) -> list[bool]:
        return [
            callback._implements_train_batch_hooks(),
            callback._implements_test_batch_hooks(),
            callback._implements_predict_batch_hooks(),
        ]

    assert implemented(Callback()) == [False, False, False]
    assert implemented(Trains()) == [True, False, False]
    assert implemented(Tests()) == [False, True, False]
    assert implemented(Throughput()) == [True, False, False]
    assert implemented(LossScaleMonitor()) == [False, False, False]
    assert implemented(LossScaleMonitor(every_batches=10)) == [True, False, False]
    assert implemented(DeviceMemory()) == [True, False, False]


def test_every_callback_takes_device_tensors() -> None:
    for name in set(tfvolta.callbacks.__all__) - {"session_callbacks"}:
        assert getattr(tfvolta.callbacks, name)._supports_tf_logs is True


def test_a_model_of_no_keras_is_refused() -> None:
    with pytest.raises(BridgeError, match="expected"):
        Callback().set_model(object())


def test_unknown_name_in_package() -> None:
    with pytest.raises(AttributeError, match="Throughputs"):
        getattr(tfvolta.callbacks, "Throughputs")  # noqa: B009


MADE_WITHOUT_TENSORFLOW = """
import sys
for name in ("tensorflow", "keras", "tf_keras"):
    sys.modules[name] = None
import tfvolta.callbacks as c
made = [c.Throughput(), c.LossScaleMonitor(), c.DeviceMemory(), c.ApplyPlan(object()), c.MixedPrecision(), c.XlaJit()]
print(len(made))
"""


def test_callbacks_are_made_without_tensorflow() -> None:
    done = subprocess.run([sys.executable, "-c", MADE_WITHOUT_TENSORFLOW], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "6"), done.stderr


@pytest.mark.parametrize(("stack", "call"), [("keras3", 1), ("keras2", 7), ("tf_keras", 7)])
def test_a_carrier_verifies_once_per_fit(monkeypatch: pytest.MonkeyPatch, stack: str, call: int) -> None:
    serve(monkeypatch, FakeBridge(stack))
    session, model = FakeSession(), object()
    plan = ApplyPlan(session)  # type: ignore[arg-type]
    for _ in range(2):
        plan.set_model(model)
        assert session.events.pop() == ("attach", model)
        for batch in range(10):
            plan.on_train_batch_end(batch)
            assert session.events == ([("step_traced", model)] if batch + 1 >= call else [])
        plan.on_epoch_end(0)
        assert session.events == [("step_traced", model)]
        session.events.clear()


def test_a_short_epoch_is_verified_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FakeBridge("keras2"))
    session, model = FakeSession(), object()
    plan = ApplyPlan(session)  # type: ignore[arg-type]
    plan.set_model(model)
    plan.on_train_batch_end(0)
    plan.on_epoch_end(0)
    plan.on_epoch_end(1)
    assert session.events == [("attach", model), ("step_traced", model)]


@pytest.mark.parametrize(("pending", "updates", "warned"), [(2, 0, True), (2, 1, False), (0, 0, False)])
def test_a_fit_that_never_updates_says_so(
    monkeypatch: pytest.MonkeyPatch, pending: int, updates: int, warned: bool
) -> None:
    bridge = serve(monkeypatch, FakeBridge())
    bridge.reduced = ReductionState(ReductionSettings(every=4), batches=pending, updates=updates, pending=pending)
    session = FakeSession()
    callback = ApplyPlan(session)  # type: ignore[arg-type]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        callback.set_model(Model())
        callback.end_windows()
    said = [str(each.message) for each in caught]
    assert any("no weight was updated" in text and "reduce_every" in text for text in said) == warned
    assert any("no weight was updated" in text for text in session.warnings) == warned
