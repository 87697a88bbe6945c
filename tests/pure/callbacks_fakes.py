"""A recorded Keras for callbacks: a clock moved by hand, a bridge that answers as told, a session that listens."""

from __future__ import annotations

import types
from typing import Any, Iterable, Optional

import pytest

from tfvolta.bridge.base import JitState, LossScaleState, StepCounts
from tfvolta.bridge.reduction import ReductionState


class FakeBridge:
    """Answers of a bridge, set by the test."""

    def __init__(self, stack: str = "keras3") -> None:
        self.stack = stack
        self.traces = 0
        self.trace_questions = 0
        self.per_call = 1
        self.compiled = False
        self.examples: Optional[int] = None
        self.counts: Optional[StepCounts] = StepCounts(0, 0)
        self.scale: Optional[LossScaleState] = None
        self.reduced: Optional[ReductionState] = None

    def trace_count(self, model: Any) -> int:
        self.trace_questions += 1
        return self.traces

    def steps_per_execution(self, model: Any) -> int:
        return self.per_call

    def fit_data(self, model: Any) -> None:
        """No fit is running."""

    def jit(self, model: Any) -> JitState:
        return JitState(self.compiled, self.compiled)

    def examples_seen(self, model: Any) -> Optional[int]:
        return self.examples

    def step_counts(self, model: Any) -> Optional[StepCounts]:
        return self.counts

    def accumulation_steps(self, optimizer: Any) -> int:
        return 1

    def reduction(self, model: Any) -> Optional[ReductionState]:
        return self.reduced

    def mend(self, model: Any) -> bool:
        return False

    def count_steps(self, model: Any) -> bool:
        return False

    def loss_scale(self, optimizer: Any) -> Optional[LossScaleState]:
        return self.scale

    def step(self, applied: int = 1, skipped: int = 0) -> None:
        """Advances the optimiser's counts."""
        assert self.counts is not None
        self.counts = StepCounts(self.counts.applied + applied, (self.counts.skipped or 0) + skipped)


class FakeSession:
    """Listens to what callbacks tell a session."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.measurements: dict[str, Any] = {}
        self.config = types.SimpleNamespace(mixed_precision=None)
        self.warnings: list[str] = []
        self.recorder = types.SimpleNamespace(warned=self.warnings.append)

    def attach(self, model: Any, in_fit: bool = True) -> None:
        self.events.append(("attach", model))

    def step_traced(self, model: Any) -> None:
        self.events.append(("step_traced", model))

    def measured(self, name: str, values: dict[str, Any]) -> None:
        self.measurements[name] = values


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        for module in ("call_clock", "throughput"):
            monkeypatch.setattr(f"tfvolta.callbacks.{module}.perf_counter", lambda: self.now)

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class Model:
    """Stands for a model; only its identity is used."""

    optimizer = object()
    distribute_strategy = None


def serve(monkeypatch: pytest.MonkeyPatch, bridge: FakeBridge) -> FakeBridge:
    """Makes every model belong to this bridge, and be a sound one."""
    monkeypatch.setattr("tfvolta.callbacks.base.bridge_for", lambda model: bridge)
    monkeypatch.setattr("tfvolta.callbacks.carrier.audit_model", lambda model, planned: [])
    return bridge


def start(callback: Any, model: Any, steps: Optional[int] = None) -> None:
    """What fit does before its first epoch."""
    callback.set_params({"epochs": 1, "steps": steps, "verbose": 0})
    callback.set_model(model)
    callback.on_train_begin()


def run_epoch(
    callback: Any, clock: Clock, bridge: FakeBridge, calls: Iterable[float], epoch: int = 0, steps: Optional[int] = None
) -> None:
    """One epoch without validation: calls of the given seconds, each of ``per_call`` batches and 0.001 s apart."""
    durations = list(calls)
    total = len(durations) * bridge.per_call if steps is None else steps
    callback.on_epoch_begin(epoch)
    for call, seconds in enumerate(durations):
        first = call * bridge.per_call
        callback.on_train_batch_begin(first)
        clock.pass_(seconds)
        bridge.step(min(bridge.per_call, total - first))
        callback.on_train_batch_end(first + bridge.per_call - 1)
        clock.pass_(0.001)
    callback.on_epoch_end(epoch)
