from __future__ import annotations

import pytest

from tests.pure.callbacks_fakes import FakeBridge, FakeSession, Model, serve, start
from tfvolta.bridge.base import LossScaleState, StepCounts
from tfvolta.callbacks.loss_scale_monitor import LossScaleMonitor


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> FakeBridge:
    return serve(monkeypatch, FakeBridge())


def test_counts_of_this_fit(bridge: FakeBridge) -> None:
    session = FakeSession()
    monitor = LossScaleMonitor(session=session)  # type: ignore[arg-type]
    bridge.step(100, 3)
    bridge.scale = LossScaleState(8.0, True, 0)
    start(monitor, Model())
    monitor.on_epoch_begin(0)
    bridge.step(applied=0, skipped=4)
    bridge.scale = LossScaleState(0.5, True, 0)
    monitor.on_epoch_end(0)
    expected = {"scale": 0.5, "attempted": 4, "applied": 0, "skipped": 4}
    assert monitor.records == [{"epoch": 0, "batch": None, **expected}]
    assert {key: monitor.summary()[key] for key in expected} == expected
    assert session.measurements["loss_scale"] == monitor.summary()


def test_no_loss_scale_and_nothing_that_counts(bridge: FakeBridge) -> None:
    bridge.counts = None
    monitor = LossScaleMonitor()
    start(monitor, Model())
    monitor.on_epoch_end(0)
    assert monitor.summary()["scale"] is None
    assert monitor.summary()["attempted"] is None


def test_skipped_steps_that_nothing_counts_stay_unknown(bridge: FakeBridge) -> None:
    bridge.counts = StepCounts(5, None)
    monitor = LossScaleMonitor()
    start(monitor, Model())
    bridge.counts = StepCounts(9, None)
    monitor.on_epoch_end(0)
    assert {key: monitor.summary()[key] for key in ("attempted", "applied", "skipped")} == {
        "attempted": None,
        "applied": 4,
        "skipped": None,
    }


@pytest.mark.parametrize(
    ("every", "per_call", "recorded"), [(2, 1, [1, 3, 5, 7, 9]), (5, 4, [7, 11]), (3, 4, [3, 7, 11]), (100, 4, [])]
)
def test_every_so_many_batches(bridge: FakeBridge, every: int, per_call: int, recorded: list[int]) -> None:
    """At the first call at or after each multiple, never twice, whatever a call covers."""
    monitor = LossScaleMonitor(every_batches=every)
    start(monitor, Model())
    monitor.on_epoch_begin(0)
    for last in range(per_call - 1, 12 if per_call > 1 else 11, per_call):
        monitor.on_train_batch_end(last)
    assert [record["batch"] for record in monitor.records] == recorded


def test_interval_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1, received 0"):
        LossScaleMonitor(every_batches=0)


def test_an_optimizer_restored_when_fit_starts_counts_for_nothing(bridge: FakeBridge) -> None:
    """A resumed fit: the callback that restores comes later in the list."""
    monitor = LossScaleMonitor()
    start(monitor, Model())
    bridge.counts = StepCounts(500, 20)
    for epoch in (3, 4):
        monitor.on_epoch_begin(epoch)
        bridge.step(7, 1)
        monitor.on_epoch_end(epoch)
    assert [(record["epoch"], record["attempted"], record["skipped"]) for record in monitor.records] == [
        (3, 8, 1),
        (4, 16, 2),
    ]


def test_an_optimizer_rolled_back_between_epochs_and_within_one(bridge: FakeBridge) -> None:
    monitor = LossScaleMonitor()
    start(monitor, Model())
    bridge.step(50)
    monitor.on_epoch_begin(0)
    bridge.step(5)
    monitor.on_epoch_end(0)
    bridge.counts = StepCounts(20, 0)
    monitor.on_epoch_begin(1)
    bridge.step(5)
    monitor.on_epoch_end(1)
    assert monitor.records[-1]["applied"] == 10
    monitor.on_epoch_begin(2)
    bridge.counts = StepCounts(3, 0)
    monitor.on_epoch_end(2)
    assert monitor.records[-1]["applied"] is None


@pytest.mark.parametrize(("steps", "counts_updates"), [(None, 1), (11, 1), (11, 2)])
def test_a_last_batch_numbered_too_high_is_no_multiple(bridge: FakeBridge, steps: int, counts_updates: int) -> None:
    """Eleven batches in calls of four: Keras 3 gives the last call number 11, which would be a twelfth batch."""
    bridge.per_call = 4
    monitor = LossScaleMonitor(every_batches=4)
    start(monitor, Model(), steps=steps)
    monitor.on_epoch_begin(0)
    for last, done in ((3, 4), (7, 4), (11, 3)):
        bridge.step(done // counts_updates)
        monitor.on_train_batch_end(last)
    assert [record["batch"] for record in monitor.records] == [3, 7]
