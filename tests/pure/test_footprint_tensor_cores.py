"""Rules of Tensor Core use on layers whose sizes are known."""

from __future__ import annotations

from typing import Any

import pytest

from tfvolta.audit.tensor_cores import slow_products
from tfvolta.footprint import LayerFigures, Product, WeightFigures
from tfvolta.footprint.tensor_cores import Audit, audit


def layer(name: str, *products: Product, kind: str = "Dense", dtype: str = "float16", **fields: Any) -> LayerFigures:
    work = sum(product.multiply_adds for product in products)
    return LayerFigures(name, kind, ((1,),), ((1,),), dtype, multiply_adds=work, products=products, **fields)


def dense(name: str, m: int, n: int, k: int, dtype: str = "float16") -> LayerFigures:
    return layer(name, Product("MatMul", dtype, m, n, k), dtype=dtype)


def convolution(name: str, inputs: int, outputs: int, groups: int = 1, dtype: str = "float16") -> LayerFigures:
    product = Product(
        "Conv2D", dtype, 1000, outputs, 9 * inputs, count=groups, channels=(inputs, outputs), groups=groups
    )
    return layer(name, product, kind="Conv2D", dtype=dtype)


def verdicts(found: Audit) -> dict[str, str]:
    return {row.layer: row.verdict for row in found.rows}


def only(row: LayerFigures, batch: int = 32) -> Any:
    (found,) = audit([row], batch).rows
    return found


def test_multiples_of_eight_are_served() -> None:
    found = only(dense("head", 32, 1008, 2048))
    assert (found.verdict, found.reason, found.change) == ("served", "", "")


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (dense("classes", 32, 1001, 2048), "1,001 to 1,008 units"),
        (dense("vocabulary", 4096, 30522, 768), "30,522 to 30,528 units"),
        (dense("hidden", 32, 64, 100), "inputs 100 to 104"),
        (convolution("conv", 30, 64), "input channels 30 to 32"),
        (convolution("conv", 32, 60), "output channels 60 to 64"),
    ],
)
def test_what_is_no_multiple_of_eight_is_named_with_the_next_one(row: LayerFigures, change: str) -> None:
    found = only(row)
    assert found.verdict == "misaligned"
    assert found.change.startswith(change)


def test_an_odd_batch_and_an_odd_sequence_are_told_apart() -> None:
    assert only(dense("hidden", 30, 64, 64), batch=30).change == "batch size 30 to 32"
    assert only(dense("hidden", 4 * 33, 64, 64), batch=4).change == "batch size 4 to 8"
    found = only(layer("scores", Product("BatchMatMulV2", "float16", 100, 100, 64, count=96)), batch=8)
    assert found.change == "pad the sequence from 100 to 104; 100 to 104 units (classes or vocabulary: the added ones" \
        " are never a target)"  # fmt: skip


def test_output_positions_of_a_convolution_are_of_no_matter() -> None:
    product = Product("Conv2D", "float16", 7 * 7 * 3, 64, 9 * 64, channels=(64, 64))
    assert only(layer("conv", product)).verdict == "served"


def test_the_three_channels_of_an_image_are_left() -> None:
    found = only(convolution("stem", 3, 64))
    assert (found.verdict, found.change) == ("misaligned", "")
    assert "cuDNN pads" in found.reason


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_volta_multiplies_float16_only(dtype: str) -> None:
    found = only(dense("head", 32, 64, 64, dtype))
    assert found.verdict == "other type"
    assert "mixed_float16" in found.change


def test_a_cast_inside_a_float16_layer_is_told_apart_from_an_island() -> None:
    found = only(layer("scores", Product("MatMul", "float32", 32, 64, 64)))
    assert "cast to float32 inside its call" in found.change


def test_depthwise_and_small_groups_are_not_served() -> None:
    depthwise = Product("DepthwiseConv2dNative", "float16", 1000, 1, 9, count=32, channels=(1, 1), groups=32)
    assert only(layer("depthwise", depthwise, kind="DepthwiseConv2D")).verdict == "impossible"
    assert only(convolution("grouped", 4, 4, groups=32)).verdict == "impossible"
    assert only(convolution("grouped", 8, 8, groups=32)).verdict == "served"


def test_the_largest_comes_first_and_shares_are_of_all_multiply_adds() -> None:
    table = WeightFigures("table", (30522, 768), "float32", True)
    rows = [
        dense("small", 8, 8, 8),
        dense("large", 64, 64, 64),
        layer("lookup", kind="Embedding", weights=(table,)),
        LayerFigures("script", "Own", (), (), "float16", multiply_adds=None),
        dense("classes", 64, 3, 64),
    ]
    found = audit(rows, 64)
    assert [row.layer for row in found.rows][:3] == ["large", "classes", "small"]
    assert verdicts(found) == {
        "large": "served", "classes": "misaligned", "small": "served", "lookup": "impossible", "script": "unknown",
    }  # fmt: skip
    total = 64**3 + 8**3 + 64 * 64 * 3
    assert found.served_percent == pytest.approx(100 * (64**3 + 8**3) / total)
    assert found.usable_percent == pytest.approx(100.0)
    assert found.unknown == ("script",)


def test_little_work_is_left_and_much_is_a_finding() -> None:
    little = audit([dense("body", 4096, 1024, 1024), dense("classes", 8, 1001, 1024)], 8)
    assert little.rows[1].change == "" and little.rows[1].reason.endswith("left, negligible")
    assert slow_products(little) is None
    much = slow_products(audit([dense("body", 4096, 768, 768), dense("vocabulary", 4096, 30522, 768)], 8))
    assert much is not None and much.layers == ("vocabulary",)
    assert "30,522 to 30,528" in much.fix
    small = audit([dense("body", 8, 64, 64), dense("classes", 8, 1001, 64)], 8)
    assert small.changes and slow_products(small) is None  # too little work for any cores


def test_a_model_without_work_has_no_shares() -> None:
    found = audit([], 8)
    assert (found.multiply_adds, found.served_percent, found.rows) == (0, 0.0, ())
