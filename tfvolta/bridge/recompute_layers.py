"""A layer whose ``call`` is code, computed again as one unit."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any, Callable, Mapping, Sequence

import tensorflow as tf

from tfvolta.bridge.recompute_call import is_due, recomputed
from tfvolta.bridge.recompute_graph import Adapter
from tfvolta.bridge.recompute_records import SegmentState

PLAN = "_tfvolta_recompute_call"


@dataclasses.dataclass
class CallPlan:
    """How a layer is computed again.

    Attributes:
        adapter: That of the Keras in use.
        layer: The layer.
        own: Its ``call``.
        state: What becomes of it.
        refuse: Called where it cannot be repeated.
    """

    adapter: Adapter
    layer: Any
    own: Callable[..., Any]
    state: SegmentState
    refuse: Callable[[SegmentState], None]

    def __deepcopy__(self, memo: Any) -> None:
        """A copied layer runs as Keras runs it."""


def install(adapter: Adapter, layer: Any, state: SegmentState, refuse: Callable[[SegmentState], None]) -> None:
    """Makes a layer be computed again; ``call`` keeps its signature, from which Keras knows its arguments."""
    own = layer.call

    @functools.wraps(own)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        plan = self.__dict__.get(PLAN)
        if plan is None:
            return type(self).call(self, *arguments, **keywords)
        if not is_due():
            return plan.adapter.convert(plan.own)(*arguments, **keywords)
        return _run(plan, arguments, keywords)

    call.__dict__["autograph_info__"] = {}  # AutoGraph leaves it as it is; what it calls is converted as Keras does it
    layer.__dict__[PLAN] = CallPlan(adapter, layer, own, state, refuse)
    layer.__dict__["call"] = types.MethodType(call, layer)


def uninstall(layer: Any) -> None:
    """Puts a layer's own ``call`` back, be it that of its class or one that was on the instance before."""
    plan = layer.__dict__.pop(PLAN, None)
    if plan is None:
        return
    layer.__dict__.pop("call", None)
    if getattr(plan.own, "__func__", None) is not type(layer).call:
        layer.__dict__["call"] = plan.own


def _run(plan: CallPlan, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Calls the layer; tensors in any argument are what is kept of it."""
    given = (tuple(arguments), dict(keywords))
    flat = tf.nest.flatten(given)
    places = [number for number, item in enumerate(flat) if tf.is_tensor(item)]
    converted = plan.adapter.convert(plan.own)
    structures: list[Any] = []

    def compute(tensors: Sequence[Any]) -> list[Any]:
        filled = list(flat)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        positional, named = tf.nest.pack_sequence_as(given, filled)
        results = converted(*positional, **named)
        structures.append(results)
        flattened: list[Any] = tf.nest.flatten(results)
        return flattened

    before = plan.adapter.losses(plan.layer)
    results, repetition = recomputed(
        compute,
        [flat[place] for place in places],
        plan.adapter.surroundings(),
        lambda: "adds a loss of its own" if plan.adapter.losses(plan.layer) != before else "",
    )
    plan.state.calls.append(repetition)
    if repetition.fault:
        plan.refuse(plan.state)
    return tf.nest.pack_sequence_as(structures[0], results)
