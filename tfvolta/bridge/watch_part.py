"""The part of every bridge that looks at gradients in some steps."""

from __future__ import annotations

from typing import Any, Optional, Protocol

from tfvolta.bridge import reduction_part
from tfvolta.bridge.gradient_records import GradientSample
from tfvolta.bridge.gradient_watch import GradientWatch
from tfvolta.bridge.reduction_part import Adapter
from tfvolta.bridge.window import key_of


class _Host(Protocol):
    """What the part needs of the bridge that it belongs to."""

    reduction_adapter: Adapter

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model by path."""

    def own_variables(self, layer: Any) -> list[Any]:
        """Variables that a layer holds itself."""


class WatchPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def watch_gradients(self: _Host, model: Any, every: Optional[int]) -> bool:
        """Looks at a compiled model's gradients every so many steps; None: no longer."""
        path = reduction_part.path_of(model)
        present = None if path is None or path.watch is None else path.watch.every
        if present != every:
            watch = None if every is None else GradientWatch(every)
            reduction_part.observe(self.reduction_adapter, model, watch=watch)
        return present != every

    def start_watch(self, model: Any, active: bool = True) -> None:
        """Begins a fit that is looked at, or lets the watch rest."""
        path = reduction_part.path_of(model)
        if path is not None and path.watch is not None:
            path.watch.restart()
            path.watch.active = active

    def gradient_sample(self: _Host, model: Any) -> Optional[GradientSample]:
        """What was seen of the gradients since this was called last; None where no step was looked at."""
        path = reduction_part.path_of(model)
        if path is None or path.watch is None:
            return None

        def owners() -> dict[Any, str]:
            layers = [("", model), *self.layers(model)]
            return {key_of(variable): path for path, layer in layers for variable in self.own_variables(layer)}

        return path.watch.sample(model.distribute_strategy, owners)
