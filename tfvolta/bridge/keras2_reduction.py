"""Keras 2: the way of gradients in front of an optimiser, and one batch a call.

``apply_gradients`` of the outermost optimiser is where every train step ends; what sits there is on the instance, so
that the class and the config stay Keras's own for saving. Optimisers of Keras 2.11 on and legacy ones, TensorFlow
Addons' among them, are told in different words that gradients were reduced already.
"""

from __future__ import annotations

import types
from typing import Any, Callable, ContextManager, Iterable, Optional

import tensorflow as tf

from tfvolta.bridge.gradient_path import Arrival, GradientPath, forget_path, path_in_front_of, put_in_front_of
from tfvolta.bridge.gradient_watch import Size
from tfvolta.bridge.keras2_functions import reset_functions
from tfvolta.bridge.keras2_package import Package

_APPLY = "apply_gradients"


class _OneStep:
    """A context in which a model has no ``steps_per_execution``; past Keras's tracking of variables."""

    def __init__(self, model: Any):
        self._attributes = model.__dict__
        self._steps = self._attributes.get("_steps_per_execution")

    def __enter__(self) -> None:
        self._attributes["_steps_per_execution"] = None

    def __exit__(self, *error: Any) -> None:
        self._attributes["_steps_per_execution"] = self._steps


class Keras2Reduction:
    """``tfvolta.bridge.reduction_part.Adapter`` for one Keras 2 package."""

    def __init__(self, package: Package):
        self._package = package

    def optimizers(self, model: Any) -> Iterable[Any]:
        """The compiled optimiser, and those that a script keeps on the model itself."""
        kinds = (self._package.optimizer, self._package.legacy_optimizer)
        found = [each for each in (model.optimizer, *vars(model).values()) if isinstance(each, kinds)]
        return list({id(each): each for each in found}.values())

    def attach(self, optimizer: Any, path: GradientPath) -> None:
        """Puts a path in front of an optimiser, and takes away one from the optimiser inside."""
        if isinstance(optimizer, self._package.scaler):
            forget_path(optimizer.inner_optimizer, _APPLY)
        put_in_front_of(optimizer, path, _APPLY, types.MethodType(_hook(self._package, optimizer), optimizer))

    def detach(self, optimizer: Any) -> None:
        """Takes a path away."""
        forget_path(optimizer, _APPLY)
        if isinstance(optimizer, self._package.scaler):
            forget_path(optimizer.inner_optimizer, _APPLY)

    def prepare(self, model: Any) -> None:
        """Nothing: Keras 2 makes an optimiser's variables past the graph that is being traced."""

    def one_step(self, model: Any) -> ContextManager[None]:
        """A context in which a model trains one batch a call."""
        return _OneStep(model)

    def steps(self, model: Any) -> int:
        """Batches in the next call; ``fit`` lowers the number for the last call of an epoch."""
        return 1 if model._steps_per_execution is None else int(model._steps_per_execution.numpy())

    def remake(self, model: Any) -> None:
        """Forgets the traced functions."""
        reset_functions(model)


def _hook(package: Package, optimizer: Any) -> Callable[..., Any]:
    """``apply_gradients`` in which gradients take their path first."""
    legacy = isinstance(optimizer, package.legacy_optimizer)
    already = {"experimental_aggregate_gradients": False} if legacy else {"skip_gradients_aggregation": True}

    def apply_gradients(
        self: Any,
        grads_and_vars: Any,
        name: Optional[str] = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        path = path_in_front_of(self)
        pairs = list(grads_and_vars)
        reduced = skip_gradients_aggregation or not experimental_aggregate_gradients
        named = {} if name is None else {"name": name}
        if path is None or tf.distribute.in_cross_replica_context() or not pairs:
            return type(self).apply_gradients(self, pairs, **named, **(already if reduced else {}))
        if legacy and not reduced:
            inner = self.inner_optimizer if isinstance(self, package.scaler) else self
            pairs = list(inner._transform_unaggregated_gradients(pairs))
        gradients, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        scaled = isinstance(self, package.scaler)
        checked = scaled and isinstance(self._loss_scale, package.loss_scale._DynamicLossScaleState)
        scale = self.loss_scale if scaled and path.settings.compression else None
        size = Size(self.loss_scale if scaled else None)
        arrival = Arrival(gradients, variables, scale, checked, reduced, size)
        path.travel(
            arrival, lambda ready: type(self).apply_gradients(self, list(zip(ready, variables)), **named, **already)
        )
        return self.iterations

    return apply_gradients
