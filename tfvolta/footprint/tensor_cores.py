"""Which matrix products and convolutions Tensor Cores can serve, which they serve badly, and what would change that.

Volta's Tensor Cores multiply float16; they have neither bfloat16 nor TF32. Rows of 8 values (16 bytes) are what their
loads take: cuBLAS before 11 and cuDNN before 7.3 used no Tensor Cores at all where a dimension was no multiple of 8,
later ones pad or use smaller loads, which is slower. The A100 likes multiples of 64 for the same reason.
Sources: NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core requirements"; Convolutional Layers User's
Guide, "Channels in and out"; Kernels of recurrent layers: cuDNN Developer Guide, "Tensor Core operations".
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

from tfvolta.footprint.layer import LayerFigures
from tfvolta.footprint.product import Product

MULTIPLE = 8
# A product that Tensor Cores serve badly or not is passed over below this share of all multiply-adds.
NEGLIGIBLE_PERCENT = 1.0
_DTYPES = {"float16"}

SERVED, MISALIGNED, FLOAT32, IMPOSSIBLE, UNKNOWN = "served", "misaligned", "other type", "impossible", "unknown"


@dataclasses.dataclass(frozen=True)
class Row:
    """What the audit says of one layer.

    Attributes:
        layer: Its path.
        kind: Its class.
        multiply_adds: Of the forward pass; None where not known.
        share_percent: Of those of the model.
        verdict: ``served``, ``misaligned``, ``other type``, ``impossible`` or ``unknown``, of its largest product.
        dimensions: (m, n, k) of that product.
        reason: Why; empty where served.
        change: What would help; empty where nothing would, or nothing is worth it.
    """

    layer: str
    kind: str
    multiply_adds: Optional[int]
    share_percent: float
    verdict: str
    dimensions: Optional[tuple[int, int, int]]
    reason: str = ""
    change: str = ""


@dataclasses.dataclass(frozen=True)
class Audit:
    """The audit of a model.

    Attributes:
        rows: Layers with products, and lookups, those with most multiply-adds first.
        multiply_adds: Of the forward pass of the batch.
        served_percent: Share that Tensor Cores serve well.
        usable_percent: Share that they serve at all.
        reachable_percent: Share that they would serve well after every change.
        unknown: Layers whose multiply-adds cannot be counted.
        batch: Examples.
    """

    rows: tuple[Row, ...]
    multiply_adds: int
    served_percent: float
    usable_percent: float
    reachable_percent: float
    unknown: tuple[str, ...]
    batch: int

    @property
    def changes(self) -> tuple[Row, ...]:
        """Rows with something to change, the largest first."""
        return tuple(row for row in self.rows if row.change)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)


def audit(layers: Sequence[LayerFigures], batch: int) -> Audit:
    """Looks at every layer.

    Args:
        layers: ``bridge.layer_figures`` of the model, for the batch that it is trained with.
        batch: Examples in that batch.
    """
    total = sum(layer.multiply_adds or 0 for layer in layers)
    rows = [_row(layer, total, batch) for layer in layers if layer.products or layer.multiply_adds is None]
    rows += [row for layer in layers if not layer.products for row in _lookup(layer)]
    rows.sort(key=lambda row: -(row.multiply_adds or 0))

    def share(*verdicts: str) -> float:
        # Of a layer with several products, each counts by itself.
        products = [(product, layer) for layer in layers for product in layer.products]
        found = sum(each.multiply_adds for each, layer in products if _judged(each, layer, batch)[0] in verdicts)
        return 100.0 * found / total if total else 0.0

    return Audit(
        rows=tuple(rows),
        multiply_adds=total,
        served_percent=share(SERVED),
        usable_percent=share(SERVED, MISALIGNED),
        reachable_percent=share(SERVED, MISALIGNED, FLOAT32),
        unknown=tuple(layer.name for layer in layers if layer.multiply_adds is None),
        batch=batch,
    )


def _row(layer: LayerFigures, total: int, batch: int) -> Row:
    if layer.multiply_adds is None:
        reason = "its operations cannot be counted before training"
        return Row(layer.name, layer.kind, None, 0.0, UNKNOWN, layer.dimensions, reason)
    largest = max(layer.products, key=lambda product: product.multiply_adds)
    verdict, reason, change = _judged(largest, layer, batch)
    percent = 100.0 * layer.multiply_adds / total if total else 0.0
    if verdict != SERVED and percent < NEGLIGIBLE_PERCENT:
        change = ""
        reason += "; left, negligible"
    return Row(layer.name, layer.kind, layer.multiply_adds, percent, verdict, layer.dimensions, reason, change)


def _lookup(layer: LayerFigures) -> list[Row]:
    """Embedding lookups: no products, but named since their tables are large and their gradients are added up."""
    if "Embedding" not in layer.kind or not layer.weights:
        return []
    reason = "a lookup multiplies nothing: it is bound by memory"
    return [Row(layer.name, layer.kind, 0, 0.0, IMPOSSIBLE, None, reason)]


def _judged(product: Product, layer: LayerFigures, batch: int) -> tuple[str, str, str]:
    """Verdict, reason and change of one product."""
    if product.depthwise:
        return IMPOSSIBLE, "depthwise: each channel by itself is no matrix product", ""
    if product.channels is not None and product.groups > 1 and min(product.channels) < MULTIPLE:
        inputs, outputs = product.channels
        groups = f"{product.groups} groups of {inputs} to {outputs} channels"
        return IMPOSSIBLE, f"{groups}: fewer than {MULTIPLE} in a group fill no tile", ""
    if product.dtype not in _DTYPES:
        return FLOAT32, f"multiplied in {product.dtype}, which Volta's Tensor Cores do not", _island(layer, product)
    odd = _odd(product)
    if not odd:
        return SERVED, "", ""
    reason = f"{', '.join(f'{what} {size:,}' for what, size in odd)}: no multiple of {MULTIPLE}"
    if odd[0] == ("input channels", 3):
        reason += " (cuDNN pads the channels of an image itself)"
        odd = odd[1:]
    return MISALIGNED, reason, "; ".join(_remedy(what, size, product, batch) for what, size in odd)


def _island(layer: LayerFigures, product: Product) -> str:
    if layer.compute_dtype == product.dtype:
        return "mixed_precision.policy: mixed_float16, and no float32 island here unless the loss needs it"
    return f"its inputs are cast to {product.dtype} inside its call: leave them in {layer.compute_dtype}"


def _odd(product: Product) -> list[tuple[str, int]]:
    """Dimensions that are no multiples of 8. Output positions of a convolution do not matter: its tiles cross them."""
    if product.channels is not None:
        named = [("input channels", product.channels[0]), ("output channels", product.channels[1])]
    else:
        named = [("rows", product.m), ("units", product.n), ("inputs", product.k)]
    return [(what, size) for what, size in named if size % MULTIPLE]


def padded(size: int) -> int:
    """The next multiple of 8."""
    return -(-size // MULTIPLE) * MULTIPLE


def _remedy(what: str, size: int, product: Product, batch: int) -> str:
    if what == "rows" and size % batch == 0:
        return f"batch size {batch} to {padded(batch)}" if batch % MULTIPLE else f"pad the sequence to {padded(size)}"
    if what == "rows":
        return f"pad the sequence from {size} to {padded(size)}"
    if what == "units":
        return f"{size:,} to {padded(size):,} units (classes or vocabulary: the added ones are never a target)"
    return f"{what} {size:,} to {padded(size):,}"
