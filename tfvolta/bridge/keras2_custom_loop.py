"""Loss scaling in a custom training loop of Keras 2, whose wrapper takes gradients in their true size already."""

from __future__ import annotations

import types
from typing import Any, Iterable, Iterator, Mapping

import tensorflow as tf

from tfvolta.bridge import gradients, loop_refusals
from tfvolta.bridge.base import LossScaleSettings, StepCounts
from tfvolta.bridge.keras2_functions import reset_functions
from tfvolta.bridge.keras2_loss_scale import inside
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_step_count import start_counting, step_counts


class CustomLoopPart:
    """The part of the bridge that custom training loops use.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def loop_optimizer(self, optimizer: Any, settings: LossScaleSettings, clipping: Mapping[str, float]) -> Any:
        """The optimiser inside a loss-scale wrapper that counts its steps, with clipping set on the inner one."""
        wrapper = self.scale_optimizer(optimizer, settings)  # type: ignore[attr-defined]
        for name, value in clipping.items():
            setattr(wrapper.inner_optimizer, name, value)
        start_counting(self.package, wrapper, tf.distribute.get_strategy())
        return wrapper

    def inner_optimizer(self, optimizer: Any) -> Any:
        """The optimiser inside a loss-scale wrapper; any other one itself."""
        return inside(self.package, optimizer)

    def keeps_ema(self, optimizer: Any) -> bool:
        """Whether an average of the weights is kept, by Keras or by TensorFlow Addons' MovingAverage or SWA."""
        return any(
            getattr(item, "use_ema", False)
            or any(cls.__name__ == "AveragedOptimizerWrapper" for cls in type(item).__mro__)
            for item in self._inside(optimizer)
        )

    def accumulation_steps(self, optimizer: Any) -> int:
        """Micro-batches in an update; Keras 2's own optimisers know no accumulation."""
        return int(getattr(self.inner_optimizer(optimizer), "gradient_accumulation_steps", None) or 1)

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        """The loss times the loss scale."""
        if not isinstance(optimizer, self.package.scaler):
            return gradients.scaled(loss, 1.0)
        optimizer._loss_has_been_scaled = True  # Keras warns of a loop that forgot it
        return gradients.scaled(loss, optimizer.loss_scale)

    def unscale_gradients(self, optimizer: Any, scaled: Any) -> Any:
        """Gradients of the scaled loss, brought back to their true size."""
        if not isinstance(optimizer, self.package.scaler):
            return gradients.unscaled(scaled, 1.0)
        optimizer._gradients_have_been_unscaled = True
        return gradients.unscaled(scaled, optimizer.loss_scale)

    def apply_true_gradients(self, optimizer: Any, grads_and_vars: Iterable[Any]) -> None:
        """One step with gradients of true size; skipped where they are not finite."""
        pairs = [tuple(pair) for pair in grads_and_vars]
        loop_refusals.refuse_empty(optimizer, pairs)
        if isinstance(optimizer, self.package.scaler):
            loop_refusals.refuse_cross_replica(optimizer)
            if loop_refusals.replicas() == 1:  # several replicas cannot make variables here
                start_counting(self.package, optimizer, tf.distribute.get_strategy())
        optimizer.apply_gradients(pairs)

    def current_scale(self, optimizer: Any) -> Any:
        """The loss scale; 1.0 where there is none. A tensor inside a graph."""
        scaled = isinstance(optimizer, self.package.scaler)
        scale = optimizer.loss_scale if scaled else tf.constant(1.0)
        return float(scale) if tf.executing_eagerly() else scale

    def count_steps(self, model: Any) -> bool:
        """Makes a compiled model's loss-scale wrapper count what it skips; False where it does, or there is none."""
        optimizer = getattr(model, "optimizer", None)
        if not isinstance(optimizer, self.package.scaler):
            return False
        if not start_counting(self.package, optimizer, model.distribute_strategy):
            return False
        reset_functions(model)
        return True

    def optimizer_step_counts(self, optimizer: Any) -> StepCounts:
        """Steps applied and skipped by an optimiser."""
        counts = step_counts(self.package, types.SimpleNamespace(optimizer=optimizer))
        return StepCounts(0) if counts is None else counts

    def _inside(self, optimizer: Any) -> Iterator[Any]:
        """The optimiser and those that it wraps, outermost first."""
        while optimizer is not None:
            yield optimizer
            wrapped = vars(optimizer).get("_optimizer")
            optimizer = wrapped if hasattr(wrapped, "apply_gradients") else None
