"""Multiply-adds of single operations, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tfvolta.footprint import LayerFigures, Product, WeightFigures
from tfvolta.footprint.operation import Operation, products_of


def product(kind: str, inputs: Any, output: Any, **attributes: Any) -> Product:
    (found,) = products_of(Operation(kind, "float16", inputs, (output,), attributes))
    return found


def test_a_matrix_product() -> None:
    found = product("MatMul", ((32, 64), (64, 10)), (32, 10))
    assert (found.m, found.n, found.k, found.count, found.multiply_adds) == (32, 10, 64, 1, 32 * 10 * 64)


def test_a_transposed_side_gives_the_other_dimension() -> None:
    assert product("MatMul", ((64, 32), (64, 10)), (32, 10), transpose_a=True).k == 64
    assert product("BatchMatMulV2", ((2, 64, 32), (2, 64, 10)), (2, 32, 10), adj_x=True).k == 64


def test_each_matrix_of_a_batch_counts() -> None:
    found = product("BatchMatMulV2", ((4, 12, 128, 64), (4, 12, 64, 128)), (4, 12, 128, 128))
    assert (found.m, found.n, found.k, found.count) == (128, 128, 64, 48)


def test_a_convolution_is_the_product_that_it_amounts_to() -> None:
    found = product("Conv2D", ((8, 224, 224, 3), (7, 7, 3, 64)), (8, 112, 112, 64), data_format="NHWC")
    assert (found.m, found.n, found.k, found.channels) == (8 * 112 * 112, 64, 147, (3, 64))
    assert found.multiply_adds == 8 * 118_013_952  # the published 118 M of ResNet's first layer


def test_groups_divide_the_work() -> None:
    whole = product("Conv2D", ((1, 14, 14, 256), (3, 3, 256, 256)), (1, 14, 14, 256))
    grouped = product("Conv2D", ((1, 14, 14, 256), (3, 3, 8, 256)), (1, 14, 14, 256))
    assert (grouped.groups, grouped.channels) == (32, (8, 8))
    assert whole.multiply_adds == 32 * grouped.multiply_adds


def test_channels_first_is_read_from_the_second_dimension() -> None:
    found = product("Conv2D", ((1, 256, 14, 14), (3, 3, 8, 256)), (1, 256, 14, 14), data_format="NCHW")
    assert (found.groups, found.m) == (32, 196)


def test_a_depthwise_convolution() -> None:
    found = product("DepthwiseConv2dNative", ((2, 10, 10, 16), (3, 3, 16, 2)), (2, 8, 8, 32))
    assert found.multiply_adds == 2 * 8 * 8 * 32 * 9
    assert found.depthwise


def test_a_transposed_convolution_spreads_each_input_value() -> None:
    found = product("Conv2DBackpropInput", ((4,), (3, 3, 6, 8), (2, 6, 6, 8)), (2, 13, 13, 6))
    assert found.multiply_adds == 2 * 6 * 6 * 8 * 9 * 6
    assert found.channels == (8, 6)


def test_a_convolution_over_volumes() -> None:
    found = product("Conv3D", ((3, 6, 6, 6, 2), (3, 3, 3, 2, 4)), (3, 4, 4, 4, 4))
    assert found.multiply_adds == 3 * 4**3 * 27 * 2 * 4


@pytest.mark.parametrize(
    ("equation", "left", "right", "output", "expected"),
    [
        ("abc,cd->abd", (2, 10, 16), (16, 4), (2, 10, 4), (20, 4, 16, 1)),
        ("aecd,abcd->acbe", (2, 10, 3, 8), (2, 12, 3, 8), (2, 3, 12, 10), (10, 12, 8, 6)),
        ("...x,xy->...y", (5, 7, 16), (16, 4), (5, 7, 4), (35, 4, 16, 1)),
        ("bij,bjk->bik", (4, 5, 6), (1, 6, 7), (4, 5, 7), (5, 7, 6, 4)),
    ],
)
def test_an_einsum(equation: str, left: Any, right: Any, output: Any, expected: Any) -> None:
    found = product("Einsum", (left, right), output, equation=equation)
    assert (found.m, found.n, found.k, found.count) == expected


def test_an_einsum_that_adds_nothing_up_is_no_product() -> None:
    assert products_of(Operation("Einsum", "float32", ((3, 4),), ((4, 3),), {"equation": "ab->ba"})) == ()
    outer = Operation("Einsum", "float32", ((3,), (4,)), ((3, 4),), {"equation": "a,b->ab"})
    assert products_of(outer) == ()


def test_a_recurrent_kernel_has_the_input_at_once_and_the_state_step_by_step() -> None:
    shapes = ((128, 256, 512), (1, 256, 1024), (1, 256, 1024), (6299648,), (256,))
    found = products_of(Operation("CudnnRNNV3", "float16", shapes, ((128, 256, 1024),), {"rnn_mode": "lstm"}))
    assert [(each.m, each.n, each.k, each.count) for each in found] == [
        (128 * 256, 4096, 512, 1),
        (256, 4096, 1024, 128),
    ]


def test_other_operations_multiply_nothing_and_an_open_shape_is_said() -> None:
    assert products_of(Operation("Relu", "float32", ((2, 3),), ((2, 3),))) == ()
    with pytest.raises(ValueError, match="MatMul has a shape that is not known"):
        products_of(Operation("MatMul", "float32", (None, (3, 4)), ((2, 4),)))


def test_what_a_layer_says_of_itself() -> None:
    weights = (WeightFigures("kernel", (64, 10), "float32", True), WeightFigures("seen", (), "int64", False))
    small, large = Product("MatMul", "float16", 2, 3, 4), Product("MatMul", "float16", 32, 10, 64)
    layer = LayerFigures("head", "Dense", ((32, 64),), ((32, 10),), "float16", weights, 20504, (small, large))
    assert layer.dimensions == (32, 10, 64)
    assert layer.parameters == 641
    assert layer.weight_bytes == 4 * 640 + 8
