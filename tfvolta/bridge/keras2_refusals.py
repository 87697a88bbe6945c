"""Layers of Keras 2 that keep their precision, and layers that XLA cannot compile, each with the technical reason."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.bridge.keras2_layers import is_input, nodes, policy_name
from tfvolta.bridge.keras2_package import Package

CONVERTIBLE_POLICIES = frozenset({"float32", "mixed_float16", "mixed_bfloat16"})
_TABLES = frozenset({"StringLookup", "IntegerLookup", "TextVectorization", "Hashing", "HashedCrossing"})
_WARPS = frozenset({"RandomRotation", "RandomTranslation", "RandomZoom"})
_ADDONS_OPERATIONS = frozenset({"CorrelationCost", "EmbeddingBag"})
_CUDNN_LAYERS = frozenset({"LSTM", "GRU"})


def refusal(package: Package, layer: Any) -> Optional[str]:
    """Why a layer cannot compute under a mixed policy, as far as its class and policy tell; None where it can."""
    name = type(layer).__name__
    own = package.is_own(layer)
    if own and name in _TABLES:
        return f"{name} maps strings or integers to integers and computes nothing in floating point"
    if policy_name(layer) not in CONVERTIBLE_POLICIES:
        return f"its policy is {policy_name(layer)}, which its author chose; only float32 layers are converted"
    if not own:
        return None
    if ".layers.preprocessing." in type(layer).__module__:
        return f"{name} prepares input data: its constants and value range (0 to 255, statistics) are made for float32"
    if ".feature_column." in type(layer).__module__:
        return f"{name} creates its columns' variables and constants in float32"
    return None


def xla_obstacles(package: Package, model: Any) -> list[str]:
    """Layers for which XLA compilation is known to fail or hang, each with the reason."""
    found = [
        f"{node.path} ({type(node.layer).__name__}): {reason}"
        for node in nodes(model)
        for reason in [_xla_obstacle(package, node.layer)]
        if reason
    ]
    if model.run_eagerly:
        found.append(f"{model.name} ({type(model).__name__}): run_eagerly is on, so there is no graph to compile")
    return found


def _xla_obstacle(package: Package, layer: Any) -> Optional[str]:
    name = type(layer).__name__
    if is_input(layer):
        return "string input; XLA has no string tensors" if layer.dtype == "string" else None
    if layer.dynamic:
        return "a dynamic layer runs eagerly"
    if not package.is_own(layer):
        custom = type(layer).__module__.startswith("tensorflow_addons.") and name in _ADDONS_OPERATIONS
        return "a custom operation of TensorFlow Addons, without an XLA kernel" if custom else None
    if name in _CUDNN_LAYERS and layer._could_use_gpu_kernel:
        return "its graph holds a cuDNN branch (CudnnRNNV3); XLA has no kernel for it and compilation can hang"
    if name in _TABLES:
        return "looks strings or integers up in a table or hashes strings; XLA has no such kernel"
    if name in _WARPS:
        return "uses ImageProjectiveTransformV3, for which XLA has no kernel"
    return None
