"""Packs and cycles read from Horovod's timeline, and what the settings of its environment make of them."""

from __future__ import annotations

import json
import pathlib
import types
from typing import Any

import pytest

from tests.pure.recorded_context import RecordedContext, RecordedModel, machine
from tfvolta.config.schema import Config
from tfvolta.knobs import horovod_environment
from tfvolta.knobs.horovod_timeline import parse, read_timeline
from tfvolta.knobs.registry import knob
from tfvolta.outcome import Status


def pack(*tensors: int, elements: int = 256, dtype: str = "float32") -> list[dict[str, Any]]:
    """The events of one pack, as ``PerformOperation`` writes them."""
    begin = [{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": pid} for pid in tensors]
    inner = [{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 2, "pid": pid} for pid in tensors]
    inner += [{"ph": "E", "ts": 3, "pid": pid} for pid in tensors]
    args = {"dtype": dtype, "shape": f"[{elements // 4}, 4]"}
    return [*begin, *inner, *({"ph": "E", "ts": 4, "pid": pid, "args": args} for pid in tensors)]


def cycles(*times: int) -> list[dict[str, Any]]:
    return [{"ph": "i", "name": "CYCLE_START", "ts": time, "s": "g"} for time in times]


def text(*groups: list[dict[str, Any]], tail: str = "") -> str:
    """A file that is still being written: no end, and perhaps half an event."""
    head = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "gradient_0"}}
    return "[\n" + json.dumps(head) + ",\n" + "".join(json.dumps(e) + "," for group in groups for e in group) + tail


def test_tensors_that_begin_together_are_a_pack() -> None:
    found = parse(text(pack(1, 2), pack(3), pack(1, 2, 3, elements=512, dtype="float16")))
    assert found.packs == ((1024, 1024), (1024,), (1024, 1024, 1024))
    assert (found.fused, found.largest_bytes) == (2, 3072)


def test_what_is_half_written_is_left_out() -> None:
    unfinished = [{"ph": "B", "name": "ALLREDUCE", "ts": 9, "pid": 7}]
    found = parse(text(pack(1), unfinished, tail='{"ph": "E", "ts": 12, "pi'))
    assert found.packs == ((1024,),) and found.largest_bytes == 0


def test_cycles_are_the_times_between_their_marks() -> None:
    assert parse(text(cycles(1000, 3500, 7000))).cycles_ms == (2.5, 3.5)


def test_no_file_is_an_empty_timeline(tmp_path: pathlib.Path) -> None:
    assert read_timeline(str(tmp_path / "none.json")).packs == ()


def context_with(tmp_path: pathlib.Path, content: str, **communication: Any) -> Any:
    """Rank 0 with a traced model and a timeline."""
    path = tmp_path / "timeline.json"
    path.write_text(content)
    sections = {"strategy": {"kind": "horovod"}, "horovod": {"timeline": str(path)}, "communication": communication}
    context = RecordedContext(Config.model_validate(sections), machine())
    context.model = RecordedModel()
    context.model.traced = True
    return context


def end_of(name: str, context: Any) -> Any:
    each = knob(name)
    value = each.value(context.config)
    each.apply(value, context)
    return each.verify(value, context)


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Any:
    state = types.SimpleNamespace(number=0)
    monkeypatch.setattr(horovod_environment, "started_rank", lambda: state.number)
    return state


def test_packs_within_the_size_are_a_success_and_larger_ones_are_not(tmp_path: pathlib.Path, rank: Any) -> None:
    large = 3 * 2**18  # elements: 3 MiB
    context = context_with(tmp_path, text(pack(1, elements=large), pack(2, 3, elements=2**17)), pack_mb=1)
    outcome = end_of("horovod_fusion", context)
    assert outcome.status is Status.APPLIED, outcome  # a single tensor may be larger
    assert outcome.observed == {"packs": 2, "of_several_tensors": 1, "largest_bytes": 2**20}
    context = context_with(tmp_path, text(pack(2, 3, elements=2**18)), pack_mb=1)
    outcome = end_of("horovod_fusion", context)
    assert outcome.status is Status.NO_EFFECT and "2.00 MiB" in outcome.message


@pytest.mark.parametrize(
    ("cycle_ms", "gap", "status"),
    [
        (3.0, 3100, Status.APPLIED),
        (3.0, 1100, Status.NO_EFFECT),
        (0.5, 600, Status.APPLIED),
        (0.5, 1500, Status.UNVERIFIABLE),
    ],
)
def test_cycles_never_end_early(tmp_path: pathlib.Path, rank: Any, cycle_ms: float, gap: int, status: Status) -> None:
    marks = cycles(*range(0, 30 * gap, gap))
    context = context_with(tmp_path, text(marks, pack(1)), cycle_time_ms=cycle_ms)
    assert end_of("horovod_cycle", context).status is status


def test_other_ranks_point_to_rank_0(tmp_path: pathlib.Path, rank: Any) -> None:
    rank.number = 1
    context = context_with(tmp_path, text(pack(1, 2)), pack_mb=1)
    outcome = end_of("horovod_fusion", context)
    assert outcome.status is Status.UNVERIFIABLE and "Rank 0 records it" in outcome.message
    assert end_of("horovod_timeline", context).status is Status.NOT_APPLICABLE


def test_autotune_shows_in_its_log(tmp_path: pathlib.Path, rank: Any) -> None:
    log = tmp_path / "tuned.csv"
    context = context_with(tmp_path, text())
    section = {"autotune": True, "autotune_log": str(log)}
    context.config = Config.model_validate({"strategy": {"kind": "horovod"}, "horovod": section})
    assert end_of("horovod_autotune", context).status is Status.UNVERIFIABLE
    log.write_text("hierarchical,fusion,cycle,score\n0,8.5,1.2,3.0\n")
    assert end_of("horovod_autotune", context).status is Status.APPLIED
