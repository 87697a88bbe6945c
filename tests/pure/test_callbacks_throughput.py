from __future__ import annotations

import sys
import types

import pytest

from tests.pure.callbacks_fakes import Clock, FakeBridge, FakeSession, Model, run_epoch, serve, start
from tfvolta.callbacks.throughput import Throughput


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> FakeBridge:
    return serve(monkeypatch, FakeBridge())


def test_warmup_is_left_out(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=2)
    start(throughput, Model())
    bridge.examples = 10 * 32
    run_epoch(throughput, clock, bridge, [5.0, 3.0] + [0.1] * 8)
    summary = throughput.summary()
    assert summary["step_seconds_median"] == pytest.approx(0.1)
    assert summary["step_seconds_iqr"] == pytest.approx(0.0)
    assert summary["n"] == summary["timed_steps"] == 8
    assert (summary["steps"], summary["warmup_steps"]) == (10, 2)
    assert summary["compile_steps"] == []
    # Eight steps of 0.1 s, each followed by 0.001 s outside the train function.
    assert summary["timed_seconds"] == pytest.approx(8 * 0.101)
    assert summary["examples_per_second"] == pytest.approx(8 * 32 / (8 * 0.101))
    assert summary["train_seconds"] == pytest.approx(8.0 + 8 * 0.1 + 10 * 0.001)


def test_an_epoch_that_goes_on_in_its_middle(clock: Clock, bridge: FakeBridge) -> None:
    """The loss tracker, restored from the checkpoint, has the six batches before it too."""
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    throughput.on_epoch_begin(0)
    for batch in range(6, 10):
        throughput.on_train_batch_begin(batch)
        clock.pass_(0.1)
        bridge.step()
        throughput.on_train_batch_end(batch)
    bridge.examples = 10 * 12
    throughput.on_epoch_end(0)
    summary = throughput.summary()
    assert summary["steps"] == 4
    assert summary["examples_per_second"] == pytest.approx(4 * 12 / 0.4)


def test_ranks_that_count_only_their_own_examples(
    clock: Clock, bridge: FakeBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    horovod = types.SimpleNamespace(rank=lambda: 1, size=lambda: 4, is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", horovod)
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    bridge.examples = 2 * 32
    run_epoch(throughput, clock, bridge, [0.1, 0.1])
    summary = throughput.summary()
    assert summary["examples_per_second"] == pytest.approx(64 / 0.202)
    assert summary["examples_per_second_of_all_ranks"] == pytest.approx(4 * 64 / 0.202)


def test_spread_of_known_times(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    run_epoch(throughput, clock, bridge, [0.1, 0.2, 0.3, 0.4, 0.5])
    summary = throughput.summary()
    assert summary["step_seconds_median"] == pytest.approx(0.3)
    assert summary["step_seconds_iqr"] == pytest.approx(0.2)
    assert summary["step_seconds_mad"] == pytest.approx(0.14826)


def test_a_step_traced_again_is_marked_and_left_out(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=1)
    start(throughput, Model())
    throughput.on_epoch_begin(0)
    for batch, seconds in enumerate([9.0, 0.1, 0.1, 4.0, 0.1]):
        throughput.on_train_batch_begin(batch)
        clock.pass_(seconds)
        bridge.traces += seconds > 1
        bridge.step()
        throughput.on_train_batch_end(batch)
    throughput.on_epoch_end(0)
    summary = throughput.summary()
    assert [(step["step"], step["seconds"], step["reason"]) for step in summary["compile_steps"]] == [
        (0, pytest.approx(9.0), "traced"),
        (3, pytest.approx(4.0), "traced"),
    ]
    assert summary["compile_seconds"] == pytest.approx(13.0)
    assert (summary["n"], summary["timed_steps"]) == (3, 3)
    assert summary["step_seconds_median"] == pytest.approx(0.1)
    assert summary["timed_seconds"] == pytest.approx(0.3)


def test_a_stall_is_not_a_compilation(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    run_epoch(throughput, clock, bridge, [0.1] * 5 + [4.0] + [0.1] * 5)
    summary = throughput.summary()
    assert summary["compile_steps"] == []
    assert summary["timed_seconds"] == pytest.approx(1.0 + 4.0 + 0.011)
    assert summary["n"] == 11


def test_a_new_shape_under_xla_is_marked(clock: Clock, bridge: FakeBridge) -> None:
    """The remainder batch of the first epoch compiles without a new trace."""
    bridge.compiled = True
    throughput = Throughput(warmup_steps=1)
    start(throughput, Model())
    bridge.examples = 40
    run_epoch(throughput, clock, bridge, [6.0, 0.1, 0.1, 5.0], epoch=0)
    run_epoch(throughput, clock, bridge, [0.1, 0.1, 0.1, 0.05], epoch=1)
    summary = throughput.summary()
    assert [(step["epoch"], step["step"], step["reason"]) for step in summary["compile_steps"]] == [
        (0, 3, "likely XLA compilation")
    ]
    assert summary["step_seconds_median"] == pytest.approx(0.1)
    assert summary["timed_steps"] == 2 + 4
    assert summary["timed_seconds"] == pytest.approx(0.2 + 0.35 + 0.003 + 0.004, abs=1e-6)


def test_a_tiny_slow_step_under_xla_is_no_compilation(clock: Clock, bridge: FakeBridge) -> None:
    bridge.compiled = True
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    run_epoch(throughput, clock, bridge, [0.001] * 9 + [0.04])
    assert throughput.summary()["compile_steps"] == []


def test_validation_is_left_out(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    throughput.on_epoch_begin(0)
    for batch in range(4):
        throughput.on_train_batch_begin(batch)
        clock.pass_(0.25)
        bridge.step()
        throughput.on_train_batch_end(batch)
    bridge.examples = 64
    throughput.on_test_begin()
    clock.pass_(100.0)
    bridge.examples = 7  # evaluate resets the metrics
    throughput.on_test_end()
    throughput.on_test_begin()  # a second evaluation, by another callback
    throughput.on_epoch_end(0)
    summary = throughput.summary()
    assert summary["train_seconds"] == pytest.approx(1.0)
    assert summary["examples_per_second"] == pytest.approx(64.0)
    assert summary["epochs"][0]["examples_source"] == "loss_tracker"


def test_evaluation_outside_fit_is_ignored(bridge: FakeBridge) -> None:
    throughput = Throughput()
    throughput.set_model(Model())
    throughput.on_test_begin()
    throughput.on_epoch_end(0)
    assert throughput.summary()["steps"] == 0
    assert throughput.summary()["step_seconds_median"] is None
    assert throughput.summary()["examples_per_second"] is None


def test_steps_per_execution_that_does_not_divide(clock: Clock, bridge: FakeBridge) -> None:
    """Eleven batches in calls of four: 4, 4 and 3; Keras 3 numbers the last batch 11."""
    bridge.per_call = 4
    throughput = Throughput(warmup_steps=3)
    start(throughput, Model(), steps=11)
    run_epoch(throughput, clock, bridge, [4.0, 0.4, 0.3], steps=11)
    summary = throughput.summary()
    assert (summary["steps"], summary["epochs"][0]["steps_source"]) == (11, "optimizer")
    assert summary["warmup_steps"] == 4  # one call covers the three
    assert summary["timed_steps"] == 7
    assert summary["step_seconds_median"] == pytest.approx(0.1)
    assert summary["n"] == 2


@pytest.mark.parametrize(("steps", "counted", "source"), [(11, 11, "params"), (None, 12, "batch_number")])
def test_steps_without_an_optimizer_count(
    clock: Clock, bridge: FakeBridge, monkeypatch: pytest.MonkeyPatch, steps: int, counted: int, source: str
) -> None:
    bridge.per_call = 4
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model(), steps=steps)
    # An optimiser count that cannot be that of three calls, as with two optimisers.
    monkeypatch.setattr(bridge, "step", lambda steps: FakeBridge.step(bridge, 100 * steps))
    run_epoch(throughput, clock, bridge, [0.4, 0.4, 0.3], steps=11)
    epoch = throughput.summary()["epochs"][0]
    assert (epoch["steps"], epoch["steps_source"]) == (counted, source)


def test_skipped_steps_count_as_batches(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    throughput.on_epoch_begin(0)
    for batch in range(4):
        throughput.on_train_batch_begin(batch)
        clock.pass_(0.1)
        bridge.step(applied=0, skipped=1)
        throughput.on_train_batch_end(batch)
    throughput.on_epoch_end(0)
    assert throughput.summary()["steps"] == 4


@pytest.mark.parametrize(
    ("tracked", "per_step", "expected"),
    [
        (None, 32, (96, "argument")),
        (5, 32, (96, "argument")),  # metrics were reset inside the epoch
        (90, 32, (90, "loss_tracker")),  # a last batch of 26
        (None, None, (None, None)),
        (2, None, (None, None)),  # fewer examples than steps: reset inside the epoch
        (90, None, (90, "loss_tracker")),
        (2**24, None, (None, None)),  # where a float32 stops counting
    ],
)
def test_source_of_examples(
    clock: Clock, bridge: FakeBridge, tracked: int, per_step: int, expected: tuple[int, str]
) -> None:
    throughput = Throughput(warmup_steps=0, examples_per_step=per_step)
    start(throughput, Model())
    bridge.examples = tracked
    run_epoch(throughput, clock, bridge, [0.1] * 3)
    epoch = throughput.summary()["epochs"][0]
    assert (epoch["examples"], epoch["examples_source"]) == expected
    assert (epoch["examples_per_second"] is None) == (expected[0] is None)


def test_a_host_that_runs_ahead_is_named(clock: Clock, bridge: FakeBridge) -> None:
    """Calls return after 1 ms each, and the device is busy for another second when the epoch ends."""
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    bridge.examples = 100
    bridge.examples_seen = lambda model: (clock.pass_(1.0), 100)[1]  # type: ignore[method-assign,assignment]
    run_epoch(throughput, clock, bridge, [0.001] * 10)
    summary = throughput.summary()
    assert summary["step_times"] == "dispatch"
    assert summary["examples_per_second"] == pytest.approx(100 / 1.02)


def test_times_of_calls_that_wait_are_named(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    run_epoch(throughput, clock, bridge, [0.1] * 10)
    assert throughput.summary()["step_times"] == "execution"


def test_a_second_fit_starts_anew(clock: Clock, bridge: FakeBridge) -> None:
    session = FakeSession()
    throughput = Throughput(warmup_steps=1, session=session)  # type: ignore[arg-type]
    model = Model()
    for seconds in (0.1, 0.2):
        start(throughput, model)
        run_epoch(throughput, clock, bridge, [1.0] + [seconds] * 3)
    assert throughput.summary()["step_seconds_median"] == pytest.approx(0.2)
    assert throughput.summary()["fit"] == 2
    assert len(throughput.epochs) == 1
    kept = dict(session.measurements["throughput"])
    assert kept.pop("step_sample") == {"of": 3, "places": [0, 1, 2], "seconds": [0.2, 0.2, 0.2]}
    assert kept == throughput.summary()


def test_a_ring_keeps_the_latest_calls(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=0, capacity=4)
    start(throughput, Model())
    run_epoch(throughput, clock, bridge, [0.3] * 6 + [0.1] * 4)
    summary = throughput.summary()
    assert (summary["n"], summary["steps"], summary["timed_steps"]) == (4, 10, 10)
    assert summary["step_seconds_median"] == pytest.approx(0.1)


def test_traces_are_asked_for_after_slow_calls_only(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=2)
    start(throughput, Model())
    run_epoch(throughput, clock, bridge, [1.0, 1.0] + [0.1] * 1000)
    assert bridge.trace_questions == 1 + 3  # at the start, twice in warm-up, once to learn what is normal


def test_warmup_longer_than_an_epoch_goes_on(clock: Clock, bridge: FakeBridge) -> None:
    throughput = Throughput(warmup_steps=3)
    start(throughput, Model())
    for epoch in range(3):
        run_epoch(throughput, clock, bridge, [0.1, 0.1], epoch=epoch)
    assert throughput.summary()["warmup_steps"] == 3
    assert throughput.summary()["timed_steps"] == 3


def test_data_that_runs_out_inside_a_call(clock: Clock, bridge: FakeBridge) -> None:
    """Keras 2 does not end a call in which the data ran out; its batches were trained all the same."""
    bridge.per_call = 4
    throughput = Throughput(warmup_steps=0)
    start(throughput, Model())
    throughput.on_epoch_begin(0)
    for first in (0, 4):
        throughput.on_train_batch_begin(first)
        clock.pass_(0.4)
        bridge.step(4)
        throughput.on_train_batch_end(first + 3)
    throughput.on_train_batch_begin(8)
    clock.pass_(0.3)
    bridge.step(3)
    throughput.on_epoch_end(0)
    assert throughput.summary()["steps"] == 11
    assert throughput.summary()["step_seconds_median"] == pytest.approx(0.1)


def test_a_sample_is_bounded_in_order_and_the_same_each_time() -> None:
    from tfvolta.callbacks.step_sample import step_sample

    times = [0.001 * (1 + place % 10) for place in range(5000)]  # a slow step in ten
    sample = step_sample(times)
    assert sample["of"] == 5000 and len(sample["seconds"]) == len(sample["places"]) == 512
    assert sample["places"] == sorted(set(sample["places"])) and sample == step_sample(times)
    assert sample["seconds"] == [pytest.approx(times[place]) for place in sample["places"]]
    assert 30 <= sum(second == 0.01 for second in sample["seconds"]) <= 75  # about a tenth: no step is favoured
