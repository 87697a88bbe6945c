"""Models of which only a part computes in half precision."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.audit.finding import Finding
from tfvolta.knobs.precision_groups import group_layers, listed

_KERNEL_RANK = 2  # of a weight that is multiplied; scales and biases have rank 1


def half_converted(model: Any) -> Optional[Finding]:
    """Finds a model in which some layers multiply in half precision and others, its output layers apart, in float32.

    Layers without a matrix or a kernel, such as normalisations, are often kept in float32 and do not count.
    """
    from tfvolta.bridge import bridge_for
    from tfvolta.config.schema import MixedPrecision

    bridge = bridge_for(model)
    dtypes = set(bridge.compute_dtypes(model).values())
    half = next((dtype for dtype in ("float16", "bfloat16") if dtype in dtypes), None)
    if half is None or "float32" not in dtypes:
        return None
    groups = group_layers(bridge, model, MixedPrecision.model_validate({"policy": f"mixed_{half}"}))
    layers = bridge.layers(model)
    containers = {path.rsplit("/", 1)[0] for path, _ in layers if "/" in path}
    kernels = {path for path, layer in layers if path not in containers and _multiplies(layer)}
    inside = [path for path in groups.inside if path in kernels]
    outside = [path for path in groups.outside if path in kernels]
    if not inside or not outside:
        return None
    return Finding(
        rule="half_converted",
        what=f"{len(outside)} layers compute in float32: {listed(outside)}; {len(inside)} in {half}: {listed(inside)}",
        layers=tuple(outside),
        why="a layer takes the dtype policy when it is constructed, so layers that were made or loaded before the"
        " policy was set stay in float32 and gain nothing",
        fix="set mixed_precision.policy in the config: it converts layers that exist; keep those in float32 on purpose"
        " with mixed_precision.float32_layers",
    )


def _multiplies(layer: Any) -> bool:
    """Whether a layer has a matrix or a kernel."""
    return any(len(weight.shape) >= _KERNEL_RANK for weight in getattr(layer, "trainable_weights", ()))
