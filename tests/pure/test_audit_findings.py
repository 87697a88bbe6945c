"""Findings as text, as errors, and on their way into a run's evidence."""

from __future__ import annotations

import dataclasses
import sys
import types
import warnings

import pytest

from tests.pure.callbacks_fakes import FakeBridge, FakeSession, serve
from tfvolta.audit import Finding, refuse
from tfvolta.callbacks import ApplyPlan
from tfvolta.errors import AuditWarning, PlanError
from tfvolta.strategy import batch_norm

FINDING = Finding("float16_outputs", "1 output layer in float16", ("head/out",), "it rounds", "make it float32")


def test_a_finding_says_what_where_why_and_the_fix() -> None:
    assert str(FINDING).splitlines() == [
        "float16_outputs: 1 output layer in float16",
        "  layers: head/out",
        "  why: it rounds",
        "  fix: make it float32",
    ]
    assert "layers" not in str(dataclasses.replace(FINDING, layers=()))


def test_only_findings_that_refuse_are_raised_and_all_of_them() -> None:
    refuse(FINDING, None)
    wrong = [dataclasses.replace(FINDING, rule=rule, refuses=True) for rule in ("first", "second")]
    with pytest.raises(PlanError) as raised:
        refuse(FINDING, *wrong)
    assert [problem.where for problem in raised.value.problems] == ["first", "second"]
    assert raised.value.problems[0].fix == "make it float32"


def test_a_carrier_warns_once_and_records(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FakeBridge("keras3"))
    monkeypatch.setattr("tfvolta.callbacks.carrier.audit_model", lambda model, planned: [FINDING])
    session = FakeSession()
    plan = ApplyPlan(session)  # type: ignore[arg-type]
    with pytest.warns(AuditWarning, match="head/out"):
        plan.set_model(object())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan.on_train_batch_end(0)
    assert set(session.warnings) == {str(FINDING)}


def test_a_carrier_refuses_and_records_why(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FakeBridge("keras3"))
    finding = dataclasses.replace(FINDING, refuses=True)
    monkeypatch.setattr("tfvolta.callbacks.carrier.audit_model", lambda model, planned: [finding])
    session = FakeSession()
    with pytest.raises(PlanError, match="wrong results"):
        ApplyPlan(session).set_model(object())  # type: ignore[arg-type]
    assert session.warnings == [str(finding)]


@pytest.mark.parametrize(
    ("stack", "several", "word"),
    [("keras3", False, "replica 0"), ("keras3", True, "its own first replica"), ("keras2", False, "averaged")],
)
def test_why_batch_normalisation_suffers_depends_on_keras(
    monkeypatch: pytest.MonkeyPatch, stack: str, several: bool, word: str
) -> None:
    monkeypatch.setattr("tfvolta.bridge.stack_of", lambda model: stack)
    workers = types.SimpleNamespace(spans_workers=lambda strategy: several)  # the module itself needs TensorFlow
    monkeypatch.setitem(sys.modules, "tfvolta.bridge.workers", workers)
    model = types.SimpleNamespace(distribute_strategy=None)
    why = batch_norm.why_batch_norm(model, 4, 16)
    assert word in why and "its 4 examples alone (few" in why
    assert "1/4 of the batch" in batch_norm.why_batch_norm(model, 4)
