"""The whole step: limits, waiting, inversion, and what would help."""

from __future__ import annotations

import random

import pytest

from tests.pure.cost_fabrics import dgx1, dgx2, spread_out
from tfvolta.cost.gradients import unknown_gradients
from tfvolta.cost.models import gradients_of_model
from tfvolta.cost.reduction import KINDS, Reduction
from tfvolta.cost.scaling import FITTED, Waiting, Workload, pass_ms_of, predict
from tfvolta.cost.spread import expected_largest, slowdown
from tfvolta.cost.what_if import what_if

RESNET = Workload(gradients_of_model("resnet50"), 200.0, 256)
NONE = Waiting(0.0, 0.0)


@pytest.mark.parametrize(("count", "value"), [(1, 0.0), (2, 0.5642), (8, 1.4236), (16, 1.7660), (100, 2.5076)])
def test_the_expected_largest_of_normal_values(count: int, value: float) -> None:
    """Tabulated by Harter, Expected Values of Normal Order Statistics, Biometrika 48 (1961)."""
    assert expected_largest(count) == pytest.approx(value, abs=1e-4)


def test_the_slowdown_is_one_alone_and_grows() -> None:
    assert slowdown(1, 1) == 1.0
    assert slowdown(8, 1, 0.02, 0.5) == pytest.approx(1 + 0.02 * 1.4236, abs=1e-5)
    assert slowdown(1, 8, 0.0, 0.1) == pytest.approx(1 / 0.9**3)
    assert slowdown(8, 1) < slowdown(16, 1) < slowdown(16, 2) < slowdown(16, 32)


@pytest.mark.parametrize("kind", KINDS)
def test_one_gpu_is_what_was_measured(kind: str) -> None:
    point = predict(dgx1(1), RESNET, Reduction(kind))
    assert point.efficiency == 1.0 and point.step_ms == 200.0 and point.examples_per_second == pytest.approx(1280.0)


def test_without_waiting_only_visible_communication_is_lost() -> None:
    point = predict(dgx1(), RESNET, Reduction("mirrored"), NONE)
    assert point.waiting_ms == 0.0 and point.step_ms == pytest.approx(200.0 + point.timeline.exposed_ms)
    assert predict(dgx1(), Workload(unknown_gradients(1), 200.0), Reduction("mirrored"), NONE).efficiency > 0.999


def test_efficiency_is_throughput_over_that_of_single_gpus() -> None:
    for fabric in (dgx1(4), dgx1(8, 2), dgx2(16)):
        point = predict(fabric, RESNET, Reduction("horovod"))
        assert point.examples_per_second is not None and 0 < point.efficiency < 1
        assert point.examples_per_second == pytest.approx(point.efficiency * fabric.ranks * 1280.0)
        assert point.step_ms == pytest.approx(point.passes_ms + point.waiting_ms + point.timeline.exposed_ms)


def test_efficiency_falls_with_machines_and_with_bytes() -> None:
    by_machines = [predict(dgx1(8, count), RESNET, Reduction("horovod")).efficiency for count in (1, 2, 4, 8, 16)]
    assert by_machines == sorted(by_machines, reverse=True)
    by_bytes = [
        predict(dgx1(), Workload(unknown_gradients(count), 50.0), Reduction("mirrored")).efficiency
        for count in (10**5, 10**6, 10**7, 10**8)
    ]
    assert by_bytes == sorted(by_bytes, reverse=True)


def test_reducing_every_kth_pass_hides_communication_among_more_passes() -> None:
    points = [predict(dgx1(), RESNET, Reduction("mirrored", reduce_every=k)) for k in (1, 2, 4, 8)]
    assert [point.passes_ms for point in points] == [200.0, 400.0, 800.0, 1600.0]
    lost = [point.timeline.exposed_ms / point.step_ms for point in points]
    assert lost == sorted(lost, reverse=True) and lost[3] == pytest.approx(lost[0] / 8, rel=0.05)


def test_a_measured_step_leads_back_to_the_pass() -> None:
    chance = random.Random(11)
    for _ in range(100):
        reduction = Reduction(
            chance.choice(KINDS),
            pack_mb=chance.choice([None, 16.0]),
            reduce_every=chance.choice([1, 3]),
            xla=chance.random() < 0.5,
        )
        fabric = chance.choice([dgx1(8), dgx1(8, 4), dgx2(16), spread_out(4, "ethernet_10")])
        pass_ms = 10 ** chance.uniform(1, 3)
        step_ms = predict(fabric, Workload(RESNET.gradients, pass_ms), reduction).step_ms
        found = pass_ms_of(fabric, RESNET.gradients, reduction, step_ms)
        # Horovod's cycles make steps of a step's length, within which several passes fit.
        in_cycles = reduction.kind == "horovod" and reduction.overlaps
        assert found == pytest.approx(pass_ms, rel=1e-6, abs=reduction.cycle_time_ms if in_cycles else 1e-6)
    assert pass_ms_of(dgx1(), RESNET.gradients, Reduction("mirrored"), 0.001) == 0.0


def test_what_helps_helps() -> None:
    workload = Workload(gradients_of_model("bert_large"), 150.0, 6)
    reduction = Reduction("mirrored")
    before = predict(dgx1(), workload, reduction).efficiency
    changes = what_if(dgx1(), workload, reduction)
    gains = [change.gain_points for change in changes]
    assert gains == sorted(gains, reverse=True) and min(gains) > 0
    assert all(change.efficiency == pytest.approx(before + change.gain_points / 100) for change in changes)
    names = {change.setting.partition(":")[0] for change in changes}
    assert names == {"communication.pack_mb", "communication.compression", "communication.reduce_every"}


def test_where_nothing_is_exposed_nothing_helps() -> None:
    hidden = Reduction("mirrored", pack_mb=4.0)
    assert what_if(dgx2(), Workload(RESNET.gradients, 2000.0), hidden) == []


def test_the_hierarchical_all_reduce_is_proposed_to_horovod_only() -> None:
    slow = Workload(gradients_of_model("resnet50"), 5.0)
    for kind, proposed in (("horovod", True), ("multi_worker_mirrored", False)):
        settings = [change.setting for change in what_if(dgx1(8, 2), slow, Reduction(kind, xla=True))]
        assert ("communication.hierarchical: true" in settings) is proposed


def test_the_constants_are_those_of_the_validation() -> None:
    assert (FITTED.spread, FITTED.machine_loss) == (0.022, 0.05)
