"""Memory of a step as plain operations, against what can be added up by hand."""

from __future__ import annotations

import dataclasses

import pytest

from tfvolta.errors import ConfigError
from tfvolta.footprint import LayerFigures, WeightFigures
from tfvolta.footprint.card import card_bytes
from tfvolta.footprint.fusion import fused
from tfvolta.footprint.liveness import order_of, peak_of
from tfvolta.footprint.memory import MemoryEstimate, Variables, estimate_memory, reserve_of
from tfvolta.footprint.step import Convolution, Step, StepOperation
from tfvolta.memory.workspace import VARIABLE, limit_mb


def chain(*kinds: str, size: int = 100) -> Step:
    """Operations in a row, each reading the one before it; all tensors of one size."""
    operations = [
        StepOperation(kind, (number - 1,) if number else (), (number,), layer=number)
        for number, kind in enumerate(kinds)
    ]
    return Step(tuple(operations), (size,) * len(kinds), tuple(f"layer{number}" for number in range(len(kinds))))


def test_a_tensor_is_given_back_behind_its_last_reader() -> None:
    assert peak_of(chain("Conv2D", "Conv2D", "Conv2D", "Conv2D")).size == 200


def test_elementwise_results_are_written_over_what_nobody_else_needs() -> None:
    assert peak_of(chain("Conv2D", "Relu", "Relu", "Relu")).size == 100
    kept = Step(
        (
            StepOperation("Conv2D", (), (0,)),
            StepOperation("Relu", (0,), (1,)),
            StepOperation("ReluGrad", (1, 0), (2,)),  # needs the input of the other
        ),
        (100, 100, 100),
        (),
    )
    assert peak_of(kept).size == 200


def test_views_take_nothing_and_keep_what_they_look_at() -> None:
    step = Step(
        (
            StepOperation("Conv2D", (), (0,)),
            StepOperation("Reshape", (0,), (1,)),
            StepOperation("Conv2D", (), (2,), waits_for=(1,)),
            StepOperation("MatMul", (1, 2), (3,)),
        ),
        (100, 100, 10, 1),
        (),
    )
    assert peak_of(step).size == 111


def forward_and_backward(depth: int = 3) -> Step:
    """``y = relu(x W)`` so often, and gradients that need each product's input and each relu's output."""
    operations, sizes = [], [0]
    last = 0
    kept = []
    for number in range(depth):
        product, activated = len(sizes), len(sizes) + 1
        sizes += [100, 100]
        operations += [
            StepOperation("MatMul", (last,), (product,), layer=number),
            StepOperation("Relu", (product,), (activated,), layer=number),
        ]
        kept.append((last, activated))
        last = activated
    gradient = len(sizes)
    sizes.append(100)
    operations.append(StepOperation("Mul", (last,), (gradient,)))
    for source, activated in reversed(kept):
        inner, weights, outer = len(sizes), len(sizes) + 1, len(sizes) + 2
        sizes += [100, 7, 100]
        operations += [
            StepOperation("ReluGrad", (gradient, activated), (inner,)),
            StepOperation("MatMul", (source, inner), (weights,)),
            StepOperation("MatMul", (inner,), (outer,)),
        ]
        gradient = outer
    return Step(tuple(operations), tuple(sizes), tuple(f"dense{number}" for number in range(depth)))


def test_activations_wait_for_the_backward_pass() -> None:
    peak = peak_of(forward_and_backward())
    assert peak.by_layer[0] == peak.by_layer[1] == 100  # one activation of each layer
    assert 400 <= peak.size <= 515


def test_a_compiled_step_keeps_no_elementwise_results_that_no_product_reads() -> None:
    step = chain("Conv2D", "Cast", "Mul", "AddV2", "Conv2D")
    doubled = dataclasses.replace(  # each result is read again at the end
        step,
        operations=(*step.operations, StepOperation("Sum", (0, 1, 2, 3, 4), (5,))),
        sizes=(*step.sizes, 1),
    )
    compiled = dataclasses.replace(doubled, compiled=frozenset(range(6)))
    assert peak_of(doubled).size == 501
    # The convolutions' results and the input of the second are in memory; the others are computed again.
    assert peak_of(fused(compiled)).size == 301


def test_the_order_is_first_in_first_out() -> None:
    step = Step(
        (
            StepOperation("Conv2D", (), (0,)),
            StepOperation("Conv2D", (0,), (1,)),
            StepOperation("Conv2D", (), (2,)),
            StepOperation("MatMul", (1, 2), (3,)),
        ),
        (1, 1, 1, 1),
        (),
    )
    assert order_of(step) == [0, 2, 1, 3]


def recurrent(kind: str, gates: int, dtype: str = "float32") -> LayerFigures:
    shapes = (("kernel", (16, gates * 32)), ("recurrent_kernel", (32, gates * 32)), ("bias", (gates * 32,)))
    weights = tuple(WeightFigures(name, shape, "float32", True) for name, shape in shapes)
    return LayerFigures("rnn", kind, ((8, 10, 16),), ((8, 10, 32),), dtype, weights)


def test_what_cudnn_keeps_of_a_recurrent_layer_follows_its_steps_units_and_type() -> None:
    assert reserve_of(recurrent("LSTM", 4)) == 8 * 10 * 32 * (2 * 4 + 2) * 4
    assert reserve_of(recurrent("GRU", 3, "float16")) == 8 * 10 * 32 * (2 * 3 + 2) * 2
    assert reserve_of(LayerFigures("d", "Dense", ((8, 32),), ((8, 32),), "float32")) == 0


def test_the_parts_add_up_and_a_strategy_packs_gradients() -> None:
    variables = Variables(weights=1000, trainable=800, optimizer=1600)
    layers = [recurrent("LSTM", 4)]
    plain = estimate_memory(forward_and_backward(), variables, layers, 8, compiled=False)
    assert (plain.weights, plain.optimizer, plain.workspace, plain.reduction) == (1000, 1600, 0, 0)
    held = plain.activations + plain.gradients
    assert plain.peak == 1000 + 1600 + held + reserve_of(layers[0])
    assert plain.layers[0].layer == "rnn"
    packed = estimate_memory(forward_and_backward(), variables, layers, 8, compiled=False, strategy="mirrored")
    assert packed.peak == plain.peak + 800
    assert packed.to_json()["device"] == packed.device > packed.peak


def convolutions(*each: Convolution) -> Step:
    return dataclasses.replace(chain("Conv2D", "Conv2D"), convolutions=each)


LARGE = Convolution((3, 3, 512, 512), (1, 1, 1, 1), "float32")
SPECTRA = 2 * 512 * 512 * 32 * 17 * 8


@pytest.mark.parametrize(
    ("convolution", "guess"),
    [
        (LARGE, SPECTRA),
        (dataclasses.replace(LARGE, filter_shape=(3, 3, 256, 512)), SPECTRA // 2),
        (dataclasses.replace(LARGE, dtype="float16"), 20),  # a tenth of what is held
        (dataclasses.replace(LARGE, strides=(1, 2, 2, 1)), 20),
        (dataclasses.replace(LARGE, filter_shape=(1, 1, 512, 512)), 20),
        (dataclasses.replace(LARGE, filter_shape=(33, 33, 512, 512)), 20),
    ],
)
def test_scratch_of_float32_convolutions_is_guessed_from_their_filters(convolution: Convolution, guess: int) -> None:
    variables = Variables(0, 0, 0)
    found = estimate_memory(convolutions(convolution), variables, [], 1, False, scratch_limit=8192 * 2**20)
    assert (found.scratch, found.scratch_bound, found.workspace) == (guess, 8192 * 2**20, 0)
    assert found.peak == 200 + guess and found.peak_bound == 200 + 8192 * 2**20


def test_the_limit_bounds_the_guess_and_a_compiled_step_does_not_read_it() -> None:
    variables = Variables(0, 0, 0)
    limited = estimate_memory(convolutions(LARGE), variables, [], 1, False, scratch_limit=128 * 2**20)
    assert limited.scratch == limited.scratch_bound == 128 * 2**20 and limited.peak == limited.peak_bound
    compiled = estimate_memory(convolutions(LARGE), variables, [], 1, True, scratch_limit=128 * 2**20)
    assert compiled.scratch == compiled.scratch_bound == 0 and compiled.workspace == 10
    without = estimate_memory(chain("MatMul"), variables, [], 1, False, scratch_limit=128 * 2**20)
    assert without.scratch == without.scratch_bound == 0


def test_the_limit_comes_from_the_environment_first() -> None:
    assert limit_mb(None, {}) == 8192
    assert limit_mb(256, {}) == 256
    assert limit_mb(256, {VARIABLE: "512"}) == 512
    assert limit_mb(256, {VARIABLE: "much"}) == 256
    assert limit_mb(256, {VARIABLE: "-1"}) == limit_mb(0, {}) == 0
    assert limit_mb("auto", {}) == 8192 and limit_mb("auto", {}, 16_160) == 1024


def test_a_trace_with_cudnn_in_it_holds_its_reserve_itself() -> None:
    variables, layers = Variables(0, 0, 0), [recurrent("LSTM", 4)]
    assert estimate_memory(chain("CudnnRNNV3"), variables, layers, 8, compiled=False).recurrent == 0
    assert estimate_memory(chain("While"), variables, layers, 8, compiled=False).recurrent == reserve_of(layers[0])


def test_cards_by_name_and_by_size() -> None:
    assert card_bytes("V100-16GB") == card_bytes("v100_16gb") == 16_160 * 2**20
    assert card_bytes("24") == card_bytes("24GiB") == 24 * 2**30
    for wrong in ("v100_64gb", "0", "-3", "", "nan"):
        with pytest.raises(ConfigError, match="--card"):
            card_bytes(wrong)


def test_estimates_are_plain_values() -> None:
    assert set(MemoryEstimate(1, False, *[0] * 8).to_json()) >= {"peak", "device", "error_percent", "layers"}


def test_what_waits_for_a_gradient_waits_in_a_compiled_step_too() -> None:
    """Recomputation: a copy of the input that exists only once the gradient has come."""
    step = Step(
        (
            StepOperation("MatMul", (), (0,)),
            StepOperation("MatMul", (0,), (1,)),
            StepOperation("MatMul", (1,), (2,)),
            StepOperation("Mul", (2,), (3,)),  # the gradient, inside another kernel
            StepOperation("Identity", (0,), (4,), waits_for=(3,)),
            StepOperation("MatMul", (4,), (5,)),  # the second pass
            StepOperation("MatMul", (3, 5), (6,)),
        ),
        (10, 100, 10, 10, 10, 100, 10),
        (),
        compiled=frozenset(range(7)),
    )
    assert order_of(fused(step)).index(5) > order_of(fused(step)).index(2)
    assert peak_of(fused(step)).size < 200  # both activations are never there together
