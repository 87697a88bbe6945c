"""Keras 3: a built model computes under another dtype policy; variables stay float32.

Keras 3 reads ``layer.dtype_policy`` each time a layer is called, so setting it and tracing anew is all it takes.
Source: keras/src/layers/layer.py, ``dtype_policy`` setter and ``Layer.__call__``.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Callable, Optional, Sequence

import keras
import tensorflow as tf
from keras.src import tree

from tfvolta.bridge import float32_construction, keras3_functions, keras3_layers, keras3_probe, keras3_refusal
from tfvolta.bridge.base import RefusedLayer, Retrofit
from tfvolta.bridge.layer_patterns import matches
from tfvolta.errors import BridgeError, Problem

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")


@dataclasses.dataclass
class Undo:
    """What a retrofit needs to be taken back.

    Attributes:
        model: The model.
        policies: Each layer changed, with the policy object that it had.
        casts_output: Whether the model's call was wrapped.
    """

    model: Any
    policies: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)
    casts_output: bool = False


def retrofit(model: Any, policy: str, float32_layers: Sequence[str], float32_output: bool) -> Retrofit:
    """See ``tfvolta.bridge.base.Bridge.retrofit``."""
    if policy not in POLICIES:
        raise _unknown_policy(policy)
    if not model.built:
        keras3_probe.trace(model)  # builds it where the running fit tells its inputs, so that all its layers are there
    makers = keras3_layers.output_makers(model) if float32_output and policy != "float32" else []
    named = [(path, layer) for path, layer in keras3_layers.named_layers(model) if not keras3_layers.is_input(layer)]
    undo = Undo(model)
    refused = _refuse_by_kind(named)
    islands = _islands(named, float32_layers)
    islands |= {id(layer) for layer in (_softmax_layers(named) if makers is None else makers)}
    kept = {id(layer) for path, layer in named if path in refused}
    can_probe = policy != "float32" and _can_probe(model, named)
    _set(undo, model, named, policy, islands, kept)
    if can_probe and undo.policies:
        _probe(undo, model, named, policy, islands, refused)
    if makers is None:
        undo.casts_output = cast_output(model)
    return _result(undo, named, policy, islands, refused)


def undo_retrofit(model: Any, done: Retrofit) -> None:
    """See ``tfvolta.bridge.base.Bridge.undo_retrofit``."""
    undo = done.undo_token
    if not isinstance(undo, Undo) or undo.model is not model:
        raise BridgeError(
            "This retrofit cannot be undone on this model.",
            [
                Problem(
                    where=f"model {getattr(model, 'name', model)}",
                    expected="the Retrofit that was returned for this model",
                    received="one of another model" if isinstance(undo, Undo) else "one without an undo token",
                    fix="give undo_retrofit what retrofit returned",
                )
            ],
        )
    for layer, former in undo.policies:
        layer._dtype_policy = former
    if undo.casts_output:
        model.__dict__.pop("call", None)
    if undo.policies or undo.casts_output:
        keras3_functions.reset(model)
    undo.policies, undo.casts_output = [], False


def _refuse_by_kind(named: list[tuple[str, Any]]) -> dict[str, RefusedLayer]:
    """Layers that cannot take a policy, seen from their kind alone; what lies inside them is left alone too."""
    refused: dict[str, RefusedLayer] = {}
    for path, layer in named:
        outer = next((item for item in refused.values() if path.startswith(item.name + "/")), None)
        why = f"inside {outer.name}, which is left alone" if outer else keras3_refusal.reason(layer)
        if why:
            refused[path] = RefusedLayer(path, type(layer).__name__, why)
    return refused


def _islands(named: list[tuple[str, Any]], patterns: Sequence[str]) -> set[int]:
    """Layers that match a pattern by class, name or path, with all that lies inside them."""
    found: set[int] = set()
    for path, layer in named:
        if matches(path, layer, patterns):
            found.add(id(layer))
            found.update(id(inner) for inner in keras3_layers.descendants(layer))
    for _, layer in named:  # a loop's state has one dtype: a cell in float32 takes its RNN along
        inside = {id(layer), *(id(inner) for inner in keras3_layers.descendants(layer))}
        if isinstance(layer, keras.layers.RNN) and inside & found:
            found |= inside
    return found


def _softmax_layers(named: list[tuple[str, Any]]) -> list[Any]:
    """Layers that end in a softmax; kept in float32 where the outputs of a model cannot be traced."""
    found = []
    for _, layer in named:
        activation = getattr(layer, "activation", None)
        if isinstance(layer, keras.layers.Softmax) or getattr(activation, "__name__", "") in ("softmax", "log_softmax"):
            found.append(layer)
    return found


def _set(undo: Undo, model: Any, named: list[tuple[str, Any]], policy: str, islands: set[int], kept: set[int]) -> None:
    """Gives every layer the policy that is due to it; those that have it already are not touched."""
    for layer in [model, *(layer for _, layer in named)]:
        if id(layer) in kept or (layer is model and keras3_refusal.reason(model)):
            continue
        due = "float32" if id(layer) in islands else policy
        if layer.dtype_policy.name != due:
            undo.policies.append((layer, layer._dtype_policy))
            layer.dtype_policy = keras.DTypePolicy(due)


def _can_probe(model: Any, named: list[tuple[str, Any]]) -> bool:
    """Whether a symbolic call tells something: a user's code is in it, and it works before any policy is changed."""
    graph_only = keras3_layers.graph_of(model) is not None
    if graph_only and not any(keras3_refusal.runs_user_code(layer) for _, layer in named):
        return False
    trace = keras3_probe.trace(model)
    return trace is not None and trace.error is None


def _probe(
    undo: Undo,
    model: Any,
    named: list[tuple[str, Any]],
    policy: str,
    islands: set[int],
    refused: dict[str, RefusedLayer],
) -> None:
    """Calls the model symbolically under the policy and takes back each layer in whose call an error arises."""
    paths = {id(layer): path for path, layer in named}
    for _ in range(2 * len(named) + 2):
        trace = keras3_probe.trace(model)
        if trace is None or trace.error is None:
            return
        suspects = _suspects(trace)
        if not suspects:
            return  # it fails in float32 as well: not a matter of precision
        path = paths.get(id(trace.failed), model.name)
        why = f"its call fails under {policy}: {keras3_probe.reason(trace.error)}"
        refused.setdefault(path, RefusedLayer(path, type(trace.failed).__name__, why))
        _back_to_float32(undo, suspects, islands)


def _suspects(trace: Any) -> list[Any]:
    """Layers to put back to float32 after a failed call, fewest first.

    That is the layer whose code failed; once it is in float32, the layer directly below it that ran last before the
    failure and so handed it a tensor; in the end all that is inside.
    """
    culprit = trace.failed
    inside = [culprit, *keras3_layers.descendants(culprit)]
    below = {id(child) for child in keras3_layers.children(culprit)}
    groups = [[culprit]]
    for layer, _ in reversed(trace.calls):
        if id(layer) in below:
            makers = keras3_layers.output_makers(layer) if keras3_layers.graph_of(layer) is not None else None
            groups.append([layer, *keras3_layers.descendants(layer)] if makers is None else makers)
    for group in [*groups, inside]:
        if any(layer.compute_dtype != "float32" for layer in group if not keras3_layers.is_input(layer)):
            return group
    return []


def _back_to_float32(undo: Undo, layers: list[Any], islands: set[int]) -> None:
    """Sets float32 again on layers that turned out not to bear the policy."""
    formers = {id(layer): former for layer, former in undo.policies}
    for layer in layers:
        if keras3_layers.is_input(layer) or layer.compute_dtype == "float32":
            continue
        former = formers.get(id(layer))
        if former is None:  # it was under the policy before this retrofit
            undo.policies.append((layer, layer._dtype_policy))
        if former is not None and former.name == "float32":
            layer._dtype_policy = former
        else:
            layer.dtype_policy = keras.DTypePolicy("float32")
        islands.add(id(layer))


def cast_output(model: Any) -> bool:
    """Makes a model whose outputs cannot be traced return float32: its ``call`` is wrapped on the instance."""
    if "call" in model.__dict__:
        return False
    original = model.call

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        del self
        outputs = original(*arguments, **keywords)
        return tree.map_structure(
            lambda x: tf.cast(x, tf.float32) if tf.is_tensor(x) and x.dtype in (tf.float16, tf.bfloat16) else x, outputs
        )

    model.__dict__["call"] = types.MethodType(call, model)
    return True


def _result(
    undo: Undo, named: list[tuple[str, Any]], policy: str, islands: set[int], refused: dict[str, RefusedLayer]
) -> Retrofit:
    """Names of what was done; forgets the traced functions if anything was."""
    undo.policies = [(layer, former) for layer, former in undo.policies if layer.dtype_policy is not former]
    changed = {id(layer) for layer, former in undo.policies if layer.dtype_policy.name == policy != former.name}
    if undo.policies or undo.casts_output:
        keras3_functions.reset(undo.model)
    return Retrofit(
        policy=policy,
        converted=tuple(path for path, layer in named if id(layer) in changed),
        islands=tuple(path for path, layer in named if id(layer) in islands and path not in refused),
        refused=tuple(refused.values()),
        undo_token=undo,
    )


def keep_float32_constructed(patterns: Sequence[str]) -> Callable[[], None]:
    """See ``tfvolta.bridge.base.Bridge.keep_float32_constructed``."""

    def to_float32(layer: Any) -> None:
        layer.dtype_policy = keras.DTypePolicy("float32")

    return float32_construction.keep(keras.Layer, patterns, to_float32)


def compute_dtypes(model: Any) -> dict[str, str]:
    """See ``tfvolta.bridge.base.Bridge.compute_dtypes``."""
    return {
        path: layer.compute_dtype
        for path, layer in keras3_layers.named_layers(model)
        if not keras3_layers.is_input(layer) and (layer.weights or layer.autocast)
    }


def _unknown_policy(policy: Optional[str]) -> BridgeError:
    return BridgeError(
        "Unknown dtype policy.",
        [
            Problem(
                where="mixed_precision.policy",
                expected=", ".join(POLICIES),
                received=str(policy),
                why="a retrofit keeps variables in float32, so pure float16 and quantised policies are not among them",
                fix="mixed_precision.policy: mixed_float16",
            )
        ],
    )
