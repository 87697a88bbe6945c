"""Messages and overlap: what each strategy kind really sends, and what stays visible of it."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tests.pure.cost_fabrics import FREE, dgx1, spread_out
from tfvolta.cost.all_reduce import nccl_ms
from tfvolta.cost.fabric import Fabric, Network
from tfvolta.cost.gradients import Gradients, Layer, gradients_of
from tfvolta.cost.models import MODELS, gradients_of_model
from tfvolta.cost.reduction import KINDS, MIB, Reduction, message_ms, reduce

RESNET = gradients_of_model("resnet50")
PASS_MS = 200.0
PACKED = Reduction("multi_worker_mirrored", pack_mb=25)


def any_reduction(chance: random.Random) -> Reduction:
    kind = chance.choice(KINDS)
    return Reduction(
        kind=kind,
        pack_mb=chance.choice([None, 1.0, 8.0, 32.0, 1000.0]),
        compression=chance.choice(["none", "fp16"]),
        reduce_every=chance.choice([1, 1, 4]),
        xla=chance.random() < 0.3,
    )


def test_one_gpu_reduces_nothing() -> None:
    for kind in KINDS:
        timeline = reduce(dgx1(1), RESNET, Reduction(kind), PASS_MS)
        assert (timeline.messages, timeline.busy_ms, timeline.exposed_ms) == (0, 0.0, 0.0)


@pytest.mark.parametrize("kind", ["mirrored", "multi_worker_mirrored"])
def test_tensorflow_sends_one_pack_behind_the_last_gradient(kind: str) -> None:
    timeline = reduce(dgx1(), RESNET, Reduction(kind), PASS_MS)
    copies = 4 * RESNET.size / dgx1().memory_gb_s * 1e-6
    assert timeline.messages == 1
    assert timeline.exposed_ms == timeline.busy_ms == pytest.approx(nccl_ms(dgx1(), RESNET.size) + copies)


def test_a_number_of_packs_brings_no_overlap() -> None:
    for packs in (1, 2, 8):
        timeline = reduce(dgx1(), RESNET, Reduction("mirrored", num_packs=packs), PASS_MS)
        assert timeline.messages == packs and timeline.exposed_ms == pytest.approx(timeline.busy_ms)


def test_one_tensor_at_a_time_overlaps_and_is_not_packed() -> None:
    reduction = Reduction("mirrored", num_packs=0)
    timeline = reduce(dgx1(), RESNET, reduction, PASS_MS)
    assert timeline.messages == sum(1 for layer in RESNET.layers if layer.parameters)
    assert timeline.exposed_ms < 0.1 * timeline.busy_ms
    assert message_ms(dgx1(), reduction, 1000) == nccl_ms(dgx1(), 4000)


@pytest.mark.parametrize(("pack_mb", "packs"), [(1000, 1), (50, 2), (25, 4)])
def test_packs_of_a_size_are_whole_gradients_from_the_last_layer_on(pack_mb: float, packs: int) -> None:
    timeline = reduce(dgx1(), RESNET, Reduction("mirrored", pack_mb=pack_mb), PASS_MS)
    assert timeline.messages == packs


def test_packs_are_hidden_behind_the_backward_pass() -> None:
    whole = reduce(dgx1(8, 4), RESNET, Reduction("multi_worker_mirrored"), PASS_MS)
    packed = reduce(dgx1(8, 4), RESNET, PACKED, PASS_MS)
    assert packed.exposed_ms < whole.exposed_ms and packed.busy_ms > whole.busy_ms


def test_a_pack_in_closed_form() -> None:
    """Two layers with the same work: the first pack hides behind the second half of the backward pass."""
    gradients = gradients_of("two layers", [Layer("first", MIB, 1.0), Layer("second", MIB, 1.0)])
    fabric, reduction = spread_out(2), Reduction("multi_worker_mirrored", pack_mb=4)
    cost = message_ms(fabric, reduction, MIB)
    for backward_ms in (0.0, 0.5 * cost, 3 * cost):
        timeline = reduce(fabric, gradients, reduction, 1.5 * backward_ms)
        hidden = min(cost, 0.5 * backward_ms)
        assert timeline.messages == 2 and timeline.busy_ms == pytest.approx(2 * cost)
        assert timeline.exposed_ms == pytest.approx(2 * cost - hidden)


@pytest.mark.parametrize("changes", [{"xla": True}, {"reduce_every": 2}])
def test_compiled_and_accumulated_gradients_come_at_the_end(changes: dict[str, int]) -> None:
    for kind in KINDS:
        reduction = dataclasses.replace(Reduction(kind, pack_mb=8), **changes)  # type: ignore[arg-type]
        timeline = reduce(dgx1(), RESNET, reduction, PASS_MS)
        assert not reduction.overlaps and timeline.exposed_ms >= timeline.busy_ms
        assert timeline == reduce(dgx1(), RESNET, reduction, 10 * PASS_MS)


def test_horovod_fuses_what_is_there_up_to_its_threshold() -> None:
    at_once = Reduction("horovod", xla=True)
    bert = gradients_of_model("bert_large")
    timeline = reduce(dgx1(), bert, at_once, PASS_MS)
    assert timeline.messages >= bert.size / (128 * MIB)
    assert timeline.exposed_ms == pytest.approx(timeline.busy_ms + at_once.cycle_time_ms)
    assert reduce(dgx1(), bert, dataclasses.replace(at_once, pack_mb=1e5), PASS_MS).messages == 1
    # A gradient above the threshold goes alone, none is cut.
    tiny = reduce(dgx1(), bert, dataclasses.replace(at_once, pack_mb=1e-6), PASS_MS)
    assert tiny.messages == sum(1 for layer in bert.layers if layer.parameters)


def test_longer_cycles_make_fewer_messages() -> None:
    counts = [
        reduce(dgx1(), RESNET, Reduction("horovod", cycle_time_ms=cycle), PASS_MS).messages
        for cycle in (0.1, 1.0, 5.0, 50.0, 1000.0)
    ]
    assert counts == sorted(counts, reverse=True) and counts[-1] == 1


def test_compression_halves_the_bytes_and_costs_casts() -> None:
    slow, fast = spread_out(8, "ethernet_10"), dataclasses.replace(dgx1(), inside_gb_s=1e6)
    plain, half = Reduction("mirrored"), Reduction("mirrored", compression="fp16")
    assert half.bytes_each * 2 == plain.bytes_each
    ratio = message_ms(slow, half, RESNET.parameters) / message_ms(slow, plain, RESNET.parameters)
    assert ratio == pytest.approx(0.5, rel=0.05)
    assert message_ms(fast, half, RESNET.parameters) > message_ms(fast, plain, RESNET.parameters)


def test_visible_time_is_never_negative_and_never_more_than_all_of_it() -> None:
    chance = random.Random(3)
    fabrics = [dgx1(2), dgx1(8), dgx1(8, 2), spread_out(16, "ethernet_25")]
    for _ in range(300):
        reduction, fabric = any_reduction(chance), chance.choice(fabrics)
        gradients = gradients_of_model(chance.choice(MODELS))
        pass_ms = 10 ** chance.uniform(0, 4)
        timeline = reduce(fabric, gradients, reduction, pass_ms)
        waits = reduction.cycle_time_ms if reduction.kind == "horovod" else 0.0
        assert 0.0 <= timeline.exposed_ms <= timeline.busy_ms + waits + 1e-9
        assert timeline.messages >= 1


def test_a_longer_pass_hides_more() -> None:
    for reduction in (PACKED, Reduction("mirrored", num_packs=0)):
        visible = [reduce(dgx1(8, 8), RESNET, reduction, pass_ms).exposed_ms for pass_ms in (0, 1, 3, 10, 30, 100, 1e4)]
        assert all(after <= before + 1e-9 for before, after in zip(visible, visible[1:]))
        assert visible[-1] < 0.2 * visible[0]


def test_a_fabric_without_limits_leaves_latency_and_a_cycle() -> None:
    network = Network(dataclasses.replace(FREE, reach="network"))
    free = Fabric(8, 2, FREE, float("inf"), network, float("inf"))
    gradients: Gradients = RESNET
    assert reduce(free, gradients, Reduction("mirrored"), PASS_MS).exposed_ms < 0.1
    assert reduce(free, gradients, Reduction("horovod"), PASS_MS).exposed_ms <= 1.1
