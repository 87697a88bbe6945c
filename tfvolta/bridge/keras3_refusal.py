"""Keras 3: layers that cannot take a mixed policy, each with the technical reason."""

from __future__ import annotations

from typing import Any, Optional

import keras
from keras.src.dtype_policies.dtype_policy_map import DTypePolicyMap
from keras.src.layers.preprocessing.data_layer import DataLayer
from keras.src.layers.preprocessing.index_lookup import IndexLookup

from tfvolta.bridge import keras3_probe

_PREPROCESSING = (DataLayer, IndexLookup)


def reason(layer: Any) -> Optional[str]:
    """Why a layer is left in its precision, or None where nothing speaks against a mixed policy."""
    policy = layer.dtype_policy
    if isinstance(policy, DTypePolicyMap):
        return "its policy is a DTypePolicyMap, one object that several layers share"
    if policy.quantization_mode is not None:
        return f"quantised: it computes from {policy.quantization_mode} weights under the policy {policy.name}"
    if policy.variable_dtype != "float32":
        return f"its variables are {policy.variable_dtype}, and a mixed policy computes from float32 variables"
    other = sorted({w.dtype for w in _own_weights(layer) if w.dtype in ("float64", "float16", "bfloat16")})
    if other:
        return f"it owns variables in {', '.join(other)}, and a mixed policy computes from float32 variables"
    if isinstance(layer, _PREPROCESSING) or "keras.src.layers.preprocessing" in type(layer).__module__:
        return "preprocessing: it works on raw values, whose range need not fit into float16 (largest value 65504)"
    if not layer.autocast and not keras3_probe.is_builtin(layer):
        return "created with autocast=False: its inputs and weights would stay float32 whatever the policy"
    return None


def runs_user_code(layer: Any) -> bool:
    """Whether calling a layer runs code that Keras does not ship, which may fix a dtype by hand."""
    if not keras3_probe.is_builtin(layer) or isinstance(layer, keras.layers.Lambda):
        return True
    activation = getattr(layer, "activation", None)
    module = getattr(activation, "__module__", "") or type(activation).__module__
    return activation is not None and module.split(".")[0] not in ("keras", "builtins")


def _own_weights(layer: Any) -> list[Any]:
    inner = {id(weight) for child in layer._layers for weight in child.weights}
    return [weight for weight in layer.weights if id(weight) not in inner]
