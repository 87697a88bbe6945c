"""Findings as text, as errors, and on their way into a run's evidence."""

from __future__ import annotations

import dataclasses
import sys
import types
import warnings
from typing import Any

import pytest

from tests.pure.callbacks_fakes import FakeBridge, FakeSession, serve
from tfvolta.audit import Finding, refuse
from tfvolta.audit.replicas import batch_below_replicas, uneven_shares
from tfvolta.bridge.base import FitData
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


@pytest.mark.parametrize(
    ("batch", "remainder", "replicas", "words"),
    [
        (4, 0, 2, None),
        (4, None, 2, None),
        (4, 2, 2, None),
        (None, 1, 2, None),
        (4, 4, 1, None),
        (4, 1, 2, ["a last batch of 1, which 2 replicas take as 1, 0"]),
        (5, 0, 2, ["batches of 5, which 2 replicas take as 3, 2"]),
        (8, 5, 4, ["a last batch of 5, which 4 replicas take as 2, 2, 1, 0"]),
        (
            7,
            2,
            3,
            ["batches of 7, which 3 replicas take as 3, 2, 2", "a last batch of 2, which 3 replicas take as 2, 0"],
        ),
    ],
)
def test_shares_of_different_sizes(
    monkeypatch: pytest.MonkeyPatch, batch: Any, remainder: Any, replicas: int, words: Any
) -> None:
    data = FitData("arrays", batch, 100, remainder)
    bridge = types.SimpleNamespace(fit_data=lambda model: data, stack="keras2")
    monkeypatch.setattr("tfvolta.bridge.bridge_for", lambda model: bridge)
    strategy = types.SimpleNamespace(num_replicas_in_sync=replicas)
    finding = uneven_shares(types.SimpleNamespace(distribute_strategy=strategy, fit=None))
    assert (finding is None) == (words is None)
    if finding is not None:
        assert all(word in finding.what for word in words) and not finding.refuses
        assert f"multiple of {replicas}" in finding.fix and ("drop" in finding.fix) == (batch % replicas == 0)


@pytest.mark.parametrize(
    ("batch", "replicas", "refused"), [(1, 2, True), (2, 2, False), (None, 2, False), (1, 1, False)]
)
def test_a_batch_with_fewer_rows_than_replicas_is_refused(
    monkeypatch: pytest.MonkeyPatch, batch: Any, replicas: int, refused: bool
) -> None:
    bridge = types.SimpleNamespace(fit_data=lambda model: FitData("arrays", batch))
    monkeypatch.setattr("tfvolta.bridge.bridge_for", lambda model: bridge)
    strategy = types.SimpleNamespace(num_replicas_in_sync=replicas)
    finding = batch_below_replicas(types.SimpleNamespace(distribute_strategy=strategy, fit=None))
    assert (finding is not None and finding.refuses) == refused
