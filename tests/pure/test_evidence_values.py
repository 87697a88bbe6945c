"""What is written is valid JSON and equals what is read back, whatever was measured."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import pathlib

import pytest

from tfvolta.evidence.schema import Evidence, OutcomeRecord
from tfvolta.evidence.values import json_value
from tfvolta.outcome import Status


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: float
    tags: tuple[str, ...]


class ArrayLike:
    def tolist(self) -> list[float]:
        return [1.0, math.inf]


class Symbolic:
    def numpy(self) -> None:
        raise NotImplementedError("no value in a graph")

    def __str__(self) -> str:
        return "Symbolic()"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        ({"loss": [0.5, math.inf]}, {"loss": [0.5, "Infinity"]}),
        (Colour.RED, "red"),
        ({Colour.RED: 1, 3: 2}, {"red": 1, "3": 2}),
        (pathlib.Path("a/b"), "a/b"),
        (Point(math.nan, ("t",)), {"x": "NaN", "tags": ["t"]}),
        (ArrayLike(), [1.0, "Infinity"]),
        (Symbolic(), "Symbolic()"),
        ({2, 1}, [1, 2]),
        (True, True),
        (2**80, 2**80),
        ("caf\udce9", "caf\\udce9"),
    ],
)
def test_json_value(value: object, expected: object) -> None:
    converted = json_value(value)
    assert converted == expected
    assert type(converted) is type(expected)
    assert json.loads(json.dumps(converted, allow_nan=False)) == expected


def test_a_value_that_contains_itself_does_not_end_the_run() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert "nested deeper" in json.dumps(json_value(endless))


def test_evidence_equals_itself_after_a_round_trip() -> None:
    evidence = Evidence(
        run_id="r",
        started="2026-01-01T00:00:00Z",
        command=("python", "caf\udce9.py"),
        measurements={"throughput": {"examples_per_second": math.nan, "steps": (1, 2)}},
        outcomes={"xla": OutcomeRecord(status=Status.APPLIED, observed={"dtype": Colour.RED, "worst": -math.inf})},
    )
    again = Evidence.model_validate(json.loads(json.dumps(evidence.model_dump(mode="json"), allow_nan=False)))
    assert again == evidence
    assert again.measurements["throughput"] == {"examples_per_second": "NaN", "steps": [1, 2]}
