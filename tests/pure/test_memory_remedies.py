"""What helps when memory ran out, and the figures behind it, worked by hand."""

from __future__ import annotations

import dataclasses

import pytest

from tfvolta.config.schema import known_keys
from tfvolta.memory import workspace
from tfvolta.memory.exhaustion import read
from tfvolta.memory.pool import Pool, fragmentation, from_log, least_fragmentation, worst_of
from tfvolta.memory.post_mortem import Place, PostMortem
from tfvolta.memory.remedy import Circumstances, largest_batch, remedies, smaller_batch
from tfvolta.memory.validation_peak import ValidationPeak

GIB = 2**30
V100 = Circumstances(batch_size=256, compute_capability=(7, 0), convolutions=True, memory_mb=16160, keys=known_keys())
# As TensorFlow 2.15 writes it, of an allocator with a limit of 14.8 GiB.
LOG = """I tensorflow/tsl/framework/bfc_allocator.cc:1103] Stats:
Limit:                     15843721216
InUse:                     13421772800
MaxInUse:                  15032385536
NumAllocs:                        4711
MaxAllocSize:               4294967296
Reserved:                            0
PeakReserved:                        0
LargestFreeBlock:                    0
"""


def settings(given: Circumstances) -> list[str]:
    return [each.settings for each in remedies(given)]


def test_everything_that_helps_on_a_v100_in_order_of_cost() -> None:
    found = settings(V100)
    assert found[0] == "memory.on_oom: split" and found[1] == "xla.jit: model"
    assert "cudnn.workspace_limit_mb: 512" in found and "mixed_precision.policy: mixed_float16" in found
    assert "fit.batch_size: 128 with communication.reduce_every: 2" in found


def test_what_is_there_already_is_not_advised() -> None:
    given = dataclasses.replace(V100, compiled=True, half_precision=True, on_oom="split", batch_size=1)
    assert not [each for each in settings(given) if not each.startswith("memory.recompute")]


def test_nothing_of_a_gpu_for_the_host() -> None:
    found = settings(Circumstances(batch_size=4, host=True, varies=True, keys=known_keys()))
    assert found[0].startswith("cut or bucket") and any("shuffle" in each for each in found)
    assert not [each for each in found if "xla" in each or "mixed" in each or "cudnn" in each]


def test_a_card_older_than_volta_gets_no_float16() -> None:
    assert not [each for each in settings(dataclasses.replace(V100, compute_capability=(6, 0))) if "mixed" in each]


def test_a_fragmented_pool_is_told_from_a_full_one() -> None:
    assert "devices.allocator: cuda_malloc_async" in settings(
        dataclasses.replace(V100, asked_bytes=GIB, free_bytes=2 * GIB)
    )
    assert "devices.allocator: cuda_malloc_async" not in settings(
        dataclasses.replace(V100, asked_bytes=GIB, free_bytes=9)
    )


def test_accumulation_keeps_what_was_accumulated() -> None:
    assert "fit.batch_size: 128 with communication.reduce_every: 8" in settings(
        dataclasses.replace(V100, reduce_every=4)
    )


def test_batches_of_several_replicas_are_given_together() -> None:
    found = settings(dataclasses.replace(V100, replicas=4))
    assert "fit.batch_size: 512 with communication.reduce_every: 2" in found and "memory.on_oom: split" not in found


def test_validation_needs_another_size_of_its_own() -> None:
    assert settings(dataclasses.replace(V100, stage="validation")) == ["model.fit(..., validation_batch_size=128)"]


@pytest.mark.parametrize("batch, half", [(256, 128), (100, 48), (16, 8), (12, 6), (2, 1), (1, None)])
def test_half_a_batch(batch: int, half: object) -> None:
    assert smaller_batch(batch) == half


def test_the_largest_batch_that_can_fit() -> None:
    # 2 GiB fixed, 14 GiB for 256 rows: 8 GiB of room hold 146 rows.
    assert largest_batch(256, 16 * GIB, 2 * GIB, 10 * GIB) == 144
    assert largest_batch(256, 16 * GIB, 2 * GIB, 2 * GIB) is None
    assert largest_batch(8, 16 * GIB, 0, 15 * GIB) == 7


def test_the_post_mortem_of_a_gpu() -> None:
    text = (
        "OOM when allocating tensor with shape[256,1024,1024] and type float on /job:localhost/replica:0/task:0/"
        "device:GPU:0 by allocator GPU_0_bfc"
    )
    info = {"current_bytes": 12 * GIB, "peak_bytes": 14 * GIB, "limit_bytes": 15 * GIB}
    record = PostMortem(
        Place("train", 3, 17),
        read("ResourceExhaustedError", text),
        (("x", (256, 224, 224, 3)), ("y", (256,))),
        256,
        {"GPU:0": info},
        (),
        2 * GIB,
        144,
        tuple(remedies(V100)),
        "State.",
        True,
    )
    (problem,) = record.problems()
    assert "epoch 3, batch 17" in problem.where and "GPU:0 (15.0 GiB)" in problem.expected
    assert "x (256, 224, 224, 3), y (256,)" in problem.received and "at most 144 can fit" in problem.received
    found = record.to_json()
    assert found["fragmentation_at_least"] == pytest.approx(2 / 3)  # 3 GiB are free, and no block of 1 GiB
    assert found["asked_bytes"] == GIB


def test_fragmentation_by_tensorflows_own_measure() -> None:
    assert fragmentation(1000, 950) == pytest.approx(0.05) and fragmentation(0, 0) == 0.0
    assert Pool(100, 60, 80, 10).fragmentation == pytest.approx(0.75)
    assert Pool(100, 60, 80).fragmentation is None
    assert Pool(100, 60, 80, 10, reserved_bytes=80).fragmentation == pytest.approx(0.5)


def test_the_pool_in_tensorflows_log() -> None:
    pool = from_log(LOG)
    assert pool is not None and pool.limit_bytes == 15843721216 and pool.in_use_bytes == 13421772800
    assert pool.largest_free_bytes is None and pool.fragmentation is None  # written as 0 while 2.3 GiB are free
    found = from_log(LOG.replace("LargestFreeBlock:                    0", "LargestFreeBlock:  1210974208"))
    assert found is not None and found.fragmentation == pytest.approx(0.5, abs=1e-3)
    assert from_log("nothing of the kind") is None


def test_a_failed_allocation_proves_a_least_share() -> None:
    assert least_fragmentation(GIB, 4 * GIB) == pytest.approx(0.75)
    assert least_fragmentation(GIB, GIB) is None and least_fragmentation(None, GIB) is None


def test_the_worst_of_a_trace() -> None:
    assert worst_of([{"fragmentation": 0.1}, {"fragmentation": 0.3}, {}]) == 0.3
    assert worst_of([{}]) is None


@pytest.mark.parametrize("memory_mb, start", [(8192, 512), (16160, 1024), (32510, 4096), (81559, 8192), (143771, 8192)])
def test_scratch_memory_for_a_card(memory_mb: int, start: int) -> None:
    assert workspace.start_mb(memory_mb) == start
    assert ("nothing to gain" in workspace.reason(memory_mb)) is (start == workspace.DEFAULT_MB)


def test_validation_that_raises_the_peak() -> None:
    # 2 GiB stay; training peaks at 10 and validation, with 512 rows, at 18: half of them fit under 10.
    peak = ValidationPeak("GPU:0", 10 * GIB, 18 * GIB, 2 * GIB, 512)
    assert peak.growth_bytes == 8 * GIB and peak.batch_at_most == 256
    assert "validation_batch_size=256" in str(peak) and "10.0 GiB to 18.0 GiB" in str(peak)


def test_validation_that_stays_below() -> None:
    peak = ValidationPeak("GPU:0", 10 * GIB, 10 * GIB + 1000, 2 * GIB, 512)
    assert peak.growth_bytes == 0 and peak.batch_at_most is None
    assert ValidationPeak("GPU:0", 10 * GIB, 18 * GIB, 2 * GIB).batch_at_most is None
