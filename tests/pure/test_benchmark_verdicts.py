"""What benchmarks conclude from their rows: ratios of memory, choices of XLA, distance from the largest batch."""

from __future__ import annotations

import importlib.util
import pathlib
from types import ModuleType
from typing import Any, Optional

import pytest

pytest.importorskip("numpy")
ROOT = pathlib.Path(__file__).resolve().parents[2]
GIB = 2**30


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_measure", ROOT / "benchmarks" / name / "measure.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(seconds: dict[str, float], facts: dict[str, Any], peaks: Optional[dict[str, int]] = None) -> Any:
    """A result of three rounds, and the summaries of it; the first contender is the reference."""
    from benchmarks.turns import Contender, Result
    from benchmarks.turns_options import Options
    from benchmarks.turns_summary import summaries

    contenders = [Contender(name, "group", [], {}, number == 0) for number, name in enumerate(seconds)]
    result = Result(facts=facts)
    for number in range(3):
        for name, each in seconds.items():
            row = {"round": number, "contender": name, "group": "group", "seconds": each, "examples": 64, "loss": 1.0}
            if peaks is not None:
                row.update(peak_bytes=peaks[name], resident_bytes=4 * GIB)
            result.rows.append({**row, "steps": 4})
    return result, summaries(contenders, result, Options(discard=0))


@pytest.mark.parametrize(("peak", "seconds", "meets"), [(11, 1.3, True), (13, 1.3, False), (11, 1.4, False)])
def test_memory_is_what_is_above_weights_and_both_goals_count(peak: int, seconds: float, meets: bool) -> None:
    module = load("recompute")
    facts = {name: {"gradient_bytes": 2 * GIB, "warm_up_seconds": 9.0} for name in ("plain", "again")}
    result, rows = measured({"plain": 1.0, "again": seconds}, facts, {"plain": 20 * GIB, "again": peak * GIB})
    plain, again = module.with_memory(rows, result)
    assert plain["above_bytes"] == 16 * GIB and "memory_ratio" not in plain
    assert again["memory_ratio"] == pytest.approx((peak - 4) / 16)
    assert again["memory_ratio_without_gradients"] == pytest.approx((peak - 6) / 14)
    assert again["meets"] is meets
    assert ("meets the goals" in module.line_of(again)) is meets


@pytest.mark.parametrize(
    ("on_seconds", "rule", "refused", "compiled", "share"),
    [
        (0.5, True, [], True, 1.0),
        (0.5, False, [], True, 0.5),
        (2.0, True, [], True, 0.5),
        (2.0, False, [], True, 1.0),
        (1.1, True, ["AsString in layer text"], False, 1.0),  # auto goes on without XLA, as the other does
        (1.1, False, [], False, 1.0),
    ],
)
def test_auto_has_the_share_of_what_it_chooses(
    on_seconds: float, rule: bool, refused: list[str], compiled: bool, share: float
) -> None:
    module = load("jit_auto")
    known = {"auto_compiles": rule, "auto_reason": "", "layers": []}
    facts = {"m-off": {**known, "compiled": False}, "m-on": {**known, "compiled": compiled, "refused_by_xla": refused}}
    result, rows = measured({"m-off": 1.0, "m-on": on_seconds}, facts)
    found = module.verdict("m", {row["contender"]: row for row in rows}, result)
    assert found["share_of_better"] == pytest.approx(share)
    assert ("WRONG RULE" in module.line_of(found)) is (share < 0.95)


def test_a_model_without_a_pair_is_not_compared() -> None:
    module = load("jit_auto")
    result, rows = measured({"m-off": 1.0}, {"m-off": {"auto_compiles": True}})
    rows.append({"contender": "m-on", "left_out": "was not ready in time"})
    found = module.verdict("m", {row["contender"]: row for row in rows}, result)
    assert found["share_of_better"] is None and "not ready" in module.line_of(found)


@pytest.mark.parametrize(
    ("fits", "steps", "within"),
    [
        ({24: True, 32: False, 40: False}, 0, True),
        ({24: True, 32: True, 40: False}, 1, True),
        ({24: True, 32: True, 40: True}, 2, False),  # more may fit
        ({16: True, 24: False, 32: False, 40: False}, 1, True),
        ({16: False, 24: False, 32: False, 40: False}, 3, False),
    ],
)
def test_distance_from_the_largest_batch_is_counted_in_steps(fits: dict[int, bool], steps: int, within: bool) -> None:
    found = load("batch_finder").compared(24, [{"batch": batch, "fits": each} for batch, each in fits.items()])
    assert found["steps_away"] == steps and found["within_one_step"] is within
