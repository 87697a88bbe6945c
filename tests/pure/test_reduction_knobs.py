"""Compression and windows at plan time, and how they end by what a bridge has seen."""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Any, Mapping, Optional

import pytest

from tests.pure.recorded_context import H200, RecordedContext, RecordedModel
from tests.pure.recorded_context import machine as recorded_machine
from tests.pure.test_knobs_registry import SECTIONS, front_matter
from tfvolta.bridge.records import StepCounts
from tfvolta.bridge.reduction import AllReduce, ReductionGraph, ReductionSettings, ReductionState
from tfvolta.config.schema import Config
from tfvolta.facts.schema import Facts, Gpu, TensorFlowBuild
from tfvolta.outcome import Status
from tfvolta.plan import make_plan
from tfvolta.strategy.reduction import verify_compression, verify_window
from tfvolta.strategy.reduction_knobs import REDUCTION_KNOBS, Compression, ReduceEvery

HALF = ReductionGraph({"CollectiveReduceV2[float16]": 2}, 500, {}, 0)
WIDE = ReductionGraph({"CollectiveReduceV2[float32]": 2}, 1000, {}, 0)
NONE = ReductionGraph({}, 0, {}, 0)
GRADIENTS = {"gradient_bytes": 1000, "wire_bytes": 1000}


def machine(gpu: Gpu, count: int = 1) -> Facts:
    """A machine whose TensorFlow can use its GPUs."""
    build = TensorFlowBuild(version="2.21.0", cuda_version="12.5", compute_capabilities=("sm_90", "compute_90"))
    return recorded_machine(gpu, count, tensorflow=build)


def config(kind: str = "mirrored", **communication: Any) -> Config:
    return Config.model_validate({"strategy": {"kind": kind}, "communication": communication})


class ReducingBridge:
    """A bridge that remembers the settings and answers as told."""

    def __init__(self, state: Optional[ReductionState] = None, graphs: Mapping[str, ReductionGraph] | None = None):
        self.state = state
        self.graphs = dict(graphs or {})
        self.counts: Optional[StepCounts] = StepCounts(0, 0)

    def set_reduction(self, model: Any, **settings: Any) -> bool:
        former = ReductionSettings() if self.state is None else self.state.settings
        wanted = dataclasses.replace(former, **settings)
        self.state = ReductionState(wanted) if wanted.changes else None
        return wanted != former

    def reduction(self, model: Any) -> Optional[ReductionState]:
        return self.state

    def reduction_graphs(self, model: Any) -> Mapping[str, ReductionGraph]:
        return self.graphs

    def step_counts(self, model: Any) -> Optional[StepCounts]:
        return self.counts


def model_of(replicas: int = 2, run_eagerly: bool = False) -> Any:
    strategy = types.SimpleNamespace(num_replicas_in_sync=replicas)
    return types.SimpleNamespace(distribute_strategy=strategy, run_eagerly=run_eagerly)


def state_of(**values: Any) -> ReductionState:
    settings = {key: values.pop(key) for key in ("compression", "every", "all_reduce") if key in values}
    return ReductionState(ReductionSettings(**settings), **{**GRADIENTS, **values})


@pytest.mark.parametrize("each", REDUCTION_KNOBS, ids=lambda each: each.name)
def test_cards_equal_the_classes(each: Any) -> None:
    head, body = front_matter(each.name)
    assert (head["name"], tuple(head["keys"]), head["phase"]) == (each.name, each.keys, each.phase.label)
    assert tuple(head["techniques"]) == each.techniques
    assert tuple(line[3:] for line in body.splitlines() if line.startswith("## ")) == SECTIONS
    assert "Binds: " in (type(each).__doc__ or "")


@pytest.mark.parametrize(
    ("kind", "gpus", "compression", "condition"),
    [
        ("default", 2, Status.NO_EFFECT, ""),
        ("one_device", 2, Status.NO_EFFECT, ""),
        ("mirrored", 1, Status.NO_EFFECT, ""),
        ("mirrored", 2, Status.APPLIED, ""),
        ("multi_worker_mirrored", 1, Status.APPLIED, "there are two workers or more"),
        ("horovod", 1, Status.APPLIED, "there are two workers or more"),
    ],
)
def test_forecasts_by_kind(kind: str, gpus: int, compression: Status, condition: str) -> None:
    facts, asked = machine(H200, gpus), config(kind, compression="fp16", reduce_every=4)
    forecast = Compression().forecast("fp16", facts, asked)
    assert (forecast.status, forecast.condition) == (compression, condition)
    window = ReduceEvery().forecast(4, facts, asked)
    assert window.status is Status.APPLIED
    assert ("one all-reduce" in window.message) is (compression is Status.APPLIED)


def test_the_defaults_are_said_to_be_so() -> None:
    facts, asked = machine(H200, 2), config(compression="none", reduce_every=1)
    for each, value in ((Compression(), "none"), (ReduceEvery(), 1)):
        forecast = each.forecast(value, facts, asked)
        assert forecast.status is Status.APPLIED and forecast.message.endswith("which is the default.")


def test_a_forecast_names_what_float16_cannot_hold() -> None:
    facts = machine(H200, 2)
    assert "below 6e-8 become zero" in Compression().forecast("fp16", facts, config(compression="fp16")).message
    scaled = Config.model_validate(
        {
            "strategy": {"kind": "mirrored"},
            "communication": {"compression": "fp16"},
            "mixed_precision": {"policy": "mixed_float16"},
        }
    )
    assert "those of the scaled loss travel" in Compression().forecast("fp16", facts, scaled).message


def test_a_strict_plan_refuses_compression_of_nothing_and_keeps_the_window() -> None:
    plan = make_plan(config("default", compression="fp16", reduce_every=2), machine(H200), {})
    assert [problem.received for problem in plan.refusals] == ["communication.compression: fp16"]
    plan = make_plan(config("default", reduce_every=2), machine(H200), {})
    assert plan.refusals == () and "reduce_every" in [step.knob.name for step in plan.steps]


def test_parameter_servers_reduce_nothing() -> None:
    plan = make_plan(config("parameter_server", compression="fp16", reduce_every=2), machine(H200), {})
    found = [problem for problem in plan.conflicts if problem.where.endswith(("compression", "reduce_every"))]
    assert [problem.received for problem in found] == [
        "compression: fp16 with strategy.kind: parameter_server",
        "reduce_every: 2 with strategy.kind: parameter_server",
    ]
    assert all("never reduce them among each other" in problem.why for problem in found)


def test_the_communication_knob_leaves_the_two_to_themselves() -> None:
    plan = make_plan(config(compression="fp16", reduce_every=2), machine(H200, 2), {})
    values = {step.knob.name: step.value for step in plan.steps}
    assert values["compression"] == "fp16" and values["reduce_every"] == 2
    assert set(values["communication"]) & {"compression", "reduce_every"} == set()


def test_settings_are_put_on_a_model_together_and_taken_back() -> None:
    context = RecordedContext(config(compression="fp16", reduce_every=4), machine(H200, 2))
    bridge = ReducingBridge()
    context.bridge, context.model = bridge, RecordedModel()  # type: ignore[assignment]
    Compression().apply("fp16", context)
    ReduceEvery().apply(4, context)
    assert bridge.state is not None and bridge.state.settings == ReductionSettings("fp16", 4)
    assert ReduceEvery().undo(context) and bridge.state is not None
    assert bridge.state.settings == ReductionSettings("fp16", 1)
    assert Compression().undo(context) and bridge.state is None
    assert not Compression().undo(context)


def test_what_was_there_before_comes_back() -> None:
    context = RecordedContext(config(compression="none"), machine(H200, 2))
    all_reduce = AllReduce(list, ranks=2)
    bridge = ReducingBridge(ReductionState(ReductionSettings("fp16", all_reduce=all_reduce)))
    context.bridge, context.model = bridge, RecordedModel()  # type: ignore[assignment]
    Compression().apply("none", context)
    assert bridge.state is not None and bridge.state.settings == ReductionSettings(None, all_reduce=all_reduce)
    assert Compression().undo(context)
    assert bridge.state.settings == ReductionSettings("fp16", all_reduce=all_reduce)


@pytest.mark.parametrize(
    ("state", "graphs", "replicas", "status", "words"),
    [
        (None, {}, 2, Status.NO_EFFECT, "dtype of their variables"),
        (state_of(every=2), {"update": WIDE}, 2, Status.NO_EFFECT, "dtype of their variables"),
        (state_of(compression="fp16"), {}, 1, Status.NO_EFFECT, "One replica"),
        (state_of(compression="fp16"), {}, 2, Status.PENDING, "first traced update"),
        (state_of(compression="fp16"), {"update": NONE}, 2, Status.NO_EFFECT, "reduces no gradient"),
        (state_of(compression="fp16"), {"update": WIDE}, 2, Status.NO_EFFECT, "No gradient travels as float16"),
        (
            state_of(compression="fp16", wire_bytes=500),
            {"update": HALF},
            2,
            Status.APPLIED,
            "500 bytes a replica and update in place of 1000 bytes: 2 CollectiveReduceV2[float16]",
        ),
        (
            state_of(compression="fp16", all_reduce=AllReduce(list, ranks=2, compresses=True, name="Other")),
            {"update": WIDE},
            1,
            Status.UNVERIFIABLE,
            "Other changes the number format itself",
        ),
    ],
)
def test_compression_ends_by_the_dtypes_in_the_graph(
    state: Any, graphs: Any, replicas: int, status: Status, words: str
) -> None:
    outcome = verify_compression(model_of(replicas), ReducingBridge(state, graphs))  # type: ignore[arg-type]
    assert outcome.status is status and words in outcome.message
    json.dumps(outcome.to_json())


def test_compression_of_an_eager_model_is_seen_by_its_bytes() -> None:
    bridge = ReducingBridge(state_of(compression="fp16", wire_bytes=500))
    outcome = verify_compression(model_of(run_eagerly=True), bridge)  # type: ignore[arg-type]
    assert outcome.status is Status.APPLIED and outcome.message.endswith("The model runs eagerly.")


def window(**values: Any) -> ReductionState:
    return state_of(**{"every": 4, "batches": 9, "updates": 2, "pending": 1, **values})


@pytest.mark.parametrize(
    ("state", "graphs", "applied", "status", "words"),
    [
        (state_of(every=2), {}, 0, Status.NO_EFFECT, "with each batch"),
        (window(updates=0, batches=3), {"accumulate": NONE}, 0, Status.PENDING, "after 4 batches"),
        (window(), {"accumulate": NONE, "update": WIDE}, 9, Status.NO_EFFECT, "took 9 steps in 9 batches, not 2"),
        (window(gradient_bytes=0), {"accumulate": NONE, "update": NONE}, 2, Status.NO_EFFECT, "never gives"),
        (window(), {"accumulate": WIDE, "update": WIDE}, 2, Status.NO_EFFECT, "with every batch"),
        (
            window(),
            {"accumulate": ReductionGraph({}, 0, {"CollectiveReduceV2[float32]": 2}, 900), "update": WIDE},
            2,
            Status.NO_EFFECT,
            "reduces 900 bytes with every batch by itself",
        ),
        (window(), {"accumulate": NONE, "update": NONE}, 2, Status.NO_EFFECT, "reduces no gradient"),
        (
            window(),
            {"accumulate": ReductionGraph({}, 0, {"CollectiveReduceV2[float32]": 2}, 8), "update": WIDE},
            2,
            Status.APPLIED,
            "A replica sends 250 bytes a batch in place of 1000 bytes.",
        ),
        (window(), {}, 2, Status.APPLIED, "runs eagerly"),
    ],
)
def test_windows_end_by_both_graphs_and_the_optimizers_count(
    state: ReductionState, graphs: Any, applied: int, status: Status, words: str
) -> None:
    bridge = ReducingBridge(state, graphs)
    bridge.counts = StepCounts(10 + applied, 0)
    outcome = verify_window(model_of(), bridge, 4, 10)  # type: ignore[arg-type]
    assert outcome.status is status and words in outcome.message
    json.dumps(outcome.to_json())


def test_skipped_updates_count_and_one_replica_reduces_nothing() -> None:
    bridge = ReducingBridge(window(), {"accumulate": NONE, "update": NONE})
    bridge.counts = StepCounts(11, 1)
    outcome = verify_window(model_of(replicas=1), bridge, 4, 10)  # type: ignore[arg-type]
    assert (outcome.status, outcome.message) == (Status.APPLIED, "One update in 4 batches.")


def test_a_state_is_json_for_evidence() -> None:
    state = window(compression="fp16", all_reduce=AllReduce(list, ranks=2, name="Other"))
    found = json.loads(json.dumps(state.to_json()))
    assert (found["unused_batches"], found["all_reduce"], found["every"]) == (1, "Other", 4)
