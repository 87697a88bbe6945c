"""Comparing two runs: what differs, with origins and ratios, and nothing that does not."""

from __future__ import annotations

import io
import json
import math

from rich.console import Console

from tests.pure.evidence_examples import evidence, facts, outcome
from tfvolta.evidence.schema import ErrorRecord, Evidence
from tfvolta.facts.schema import Cpu
from tfvolta.report.comparison import ABSENT, Comparison, compare
from tfvolta.report.differences import print_comparison


def printed(comparison: Comparison, width: int = 80) -> str:
    stream = io.StringIO()
    print_comparison(comparison, Console(file=stream, width=width))
    return stream.getvalue()


def found(a: Evidence, b: Evidence) -> dict[str, tuple[object, object]]:
    sections = compare(a, b).sections
    return {f"{name}:{d.key}": (d.a, d.b) for name, differences in sections.items() for d in differences}


def test_two_runs_of_the_same_do_not_differ() -> None:
    again = evidence(run_id="other", started="2026-03-02T12:00:00.000Z", pid=7, ended=None, updated=None)
    comparison = compare(evidence(), again)
    assert not comparison.differs
    assert "Nothing differs" in printed(comparison)


def test_config_differs_with_origins() -> None:
    other = evidence(
        config={
            "values": {"devices": {"memory_growth": True}, "xla": {"jit": "off"}, "math": {"tf32": False}},
            "provenance": {"xla.jit": "override 1 (xla.jit=off)", "math.tf32": "b.yaml:2"},
        }
    )
    (jit, tf32) = compare(evidence(), other).sections["config"]
    assert (jit.key, jit.a, jit.b, jit.origin_a, jit.origin_b) == (
        "xla.jit",
        "auto",
        "off",
        "a.yaml:5",
        "override 1 (xla.jit=off)",
    )
    assert (tf32.key, tf32.a, tf32.b, tf32.origin_a) == ("math.tf32", ABSENT, False, "")
    text = printed(compare(evidence(), other), width=140)
    assert "off (override 1 (xla.jit=off))" in text and "Config: 2 differences" in text
    assert "The same in both: run, machine, versions, outcomes, measurements, fits." in text


def test_measurements_differ_with_their_ratio() -> None:
    other = evidence(measurements={"throughput": {"examples_per_second": 3000.0, "step_seconds": 0.032, "epochs": []}})
    differences = {d.key: d for d in compare(evidence(), other).sections["measurements"]}
    assert differences["throughput.examples_per_second"].ratio == 1.5
    assert differences["throughput.epochs"].a is ABSENT and differences["throughput.epochs"].b == []
    assert differences["throughput.epochs[0].steps"].b is ABSENT
    assert "1.500" in printed(compare(evidence(), other))


def test_no_ratio_of_zero_of_truth_values_or_of_words() -> None:
    a = evidence(measurements={"zero": 0, "flag": True, "nan": math.nan})
    b = evidence(measurements={"zero": 2, "flag": False, "nan": 1.0})
    assert [d.ratio for d in compare(a, b).sections["measurements"]] == [None, None, None]
    assert compare(a, a).sections["measurements"] == ()


def test_one_and_true_differ_but_one_and_one_point_zero_do_not() -> None:
    a, b = evidence(measurements={"x": 1, "y": 1}), evidence(measurements={"x": True, "y": 1.0})
    assert [d.key for d in compare(a, b).sections["measurements"]] == ["x"]


def test_machine_versions_outcomes_and_errors_differ() -> None:
    other = evidence(
        status="failed",
        stack="tf_keras",
        facts=facts(gpus=(), cpu=Cpu(cores=2, memory_mb=500000)),
        versions={"tensorflow": "2.15.1", "keras": "3.15.1"},
        outcomes={"memory_growth": outcome("NOT_APPLICABLE", "no GPU")},
        error=ErrorRecord.of(KeyError("x")),
    )
    keys = found(evidence(), other)
    assert keys["run:status"] == ("completed", "failed")
    assert keys["run:error"][1] == "KeyError: 'x'"
    assert keys["facts:cpu.cores"] == (40, 2)
    assert keys["versions:tensorflow"] == ("2.21.0", "2.15.1")
    assert keys["outcomes:memory_growth.status"] == ("APPLIED", "NOT_APPLICABLE")
    assert keys["outcomes:jit.status"] == ("APPLIED", ABSENT)


def test_json_of_a_comparison() -> None:
    other = evidence(measurements={})
    content = json.loads(json.dumps(compare(evidence(), other).to_json(), allow_nan=False))
    assert content["differs"] is True
    assert content["differences"]["measurements"][0] == {
        "key": "throughput.examples_per_second",
        "a": 2000.0,
        "ratio": None,
    }


def test_a_long_comparison_fits_80_columns() -> None:
    other = evidence(measurements={f"a_measurement_with_a_long_name_{n}": {"value_in_seconds": n} for n in range(60)})
    text = printed(compare(evidence(), other))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "more; --json gives all" in text
