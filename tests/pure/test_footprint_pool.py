"""What TensorFlow's own allocator hands out for a step's tensors, which may be more than what they take."""

from __future__ import annotations

import random

import pytest

from tfvolta.footprint.liveness import peak_of
from tfvolta.footprint.pool import Pool, pooled_peak
from tfvolta.footprint.recurrent_kernel import reserve_values, workspace_values
from tfvolta.footprint.step import Step, StepOperation

MIB = 2**20


def test_a_piece_is_divided_where_half_of_it_or_128_mib_would_be_left() -> None:
    pool = Pool()
    first = pool.take(5 * MIB)  # a region of 8 MiB: more than half of it is taken
    assert pool.in_use == 8 * MIB
    pool.give_back(first)
    pool.take(4 * MIB)
    assert pool.in_use == 4 * MIB
    large = Pool()
    large.take(300 * MIB)  # of a region of 512 MiB 212 are left
    assert large.in_use == 300 * MIB


def test_the_smallest_free_piece_that_is_large_enough_is_taken() -> None:
    pool = Pool()
    taken = [pool.take(size * MIB) for size in (3, 8, 1, 12)]
    for address in taken[:2]:
        pool.give_back(address)
    pool.take(3 * MIB)
    assert pool.in_use == (4 + 1 + 16) * MIB


def test_free_pieces_beside_one_another_become_one() -> None:
    pool = Pool()
    pool.fill(0)
    pieces = [pool.take(MIB // 4) for _ in range(8)]  # the whole first region
    random.Random(0).shuffle(pieces)
    for piece in pieces:
        pool.give_back(piece)
    assert pool.in_use == 0 and pool.take(2 * MIB) == 0


def test_what_is_resident_is_handed_out_to_the_byte() -> None:
    pool = Pool()
    pool.fill(466 * MIB + 1)
    assert pool.in_use == 466 * MIB + 256


def test_many_pieces_never_overlap() -> None:
    """Whatever is taken and given back: each address has room for what was asked for."""
    pool, numbers, held = Pool(), random.Random(1), {}
    for _ in range(2000):
        if held and numbers.random() < 0.5:
            pool.give_back(held.pop(numbers.choice(list(held)))[0])
        else:
            size = numbers.randrange(1, 4 * MIB)
            address = pool.take(size)
            held[address] = (address, size)
    ends = sorted(held.values())
    assert all(first + size <= second for (first, size), (second, _) in zip(ends, ends[1:]))
    assert pool.in_use >= sum(size for _, size in ends)


def chain(*sizes: int, scratch: int = 0) -> Step:
    operations = [StepOperation("MatMul", (number - 1,) if number else (), (number,)) for number in range(len(sizes))]
    operations[-1] = StepOperation("MatMul", operations[-1].inputs, operations[-1].outputs, scratch=scratch)
    return Step(tuple(operations), sizes, ())


def test_scratch_memory_is_held_only_while_its_operation_runs() -> None:
    assert peak_of(chain(MIB, MIB, MIB)).size == 2 * MIB
    peak = peak_of(chain(MIB, MIB, MIB, scratch=5 * MIB))
    assert peak.size == 7 * MIB and sum(peak.by_layer.values()) == peak.size


@pytest.mark.parametrize("resident", [0, 100 * MIB])
def test_a_pool_hands_out_no_less_than_is_asked_for(resident: int) -> None:
    step = chain(3 * MIB, 40 * MIB, 70 * MIB, 5 * MIB, scratch=33 * MIB)
    asked = peak_of(step).size
    assert asked <= pooled_peak(step, resident) < 3 * asked
    assert pooled_peak(step, resident) == pooled_peak(step, resident)


def test_reserves_are_those_that_cudnn_has_printed() -> None:
    """Four layers of 320 in one operation; the outputs between them are three values more."""
    rows = 25_000
    for mode, said in (("lstm", 736_000_000), ("gru", 864_000_000)):
        between = 3 * rows * 320
        assert 4 * (4 * reserve_values(mode, rows, 320) + between) == said
    assert workspace_values(10, 4) == 80
