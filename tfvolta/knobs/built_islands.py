"""Layers that compute in float32 from their construction on, for models that fit never sees."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.bridge.layer_patterns import patterns_of
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.precision_groups import listed
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


class BuiltIslands(Knob):
    """Makes layers of named classes, and named layers, compute in float32 when they are constructed.

    With it a training loop of one's own, and what is computed before fit, has the islands too. ``float32_islands`` sees
    to models that exist already, to paths, and to the layers that make the outputs.

    Binds: when a layer is constructed.
    """

    name = "built_islands"
    keys = ("mixed_precision.float32_layers",)
    phase = Phase.BUILD
    closes_at = Moment.MODEL_BUILT
    move_to = "call tfvolta.build_strategy(config) before the model is made"
    techniques = ("P4",)
    changes_results = True
    covered_by = "float32_islands"

    def value(self, config: Any) -> Optional[Any]:
        settings = config.mixed_precision
        if settings is None or settings.policy == "float32" or not settings.float32_layers:
            return None
        return list(settings.float32_layers)

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        return Forecast(
            Status.APPLIED, f"Layers constructed from now on that match {', '.join(value)} compute in float32."
        )

    def apply(self, value: Any, context: Context) -> None:
        if self.name not in context.saved:
            context.saved[self.name] = context.bridge.keep_float32_constructed(value)

    def verify(self, value: Any, context: Context) -> Outcome:
        if context.model is None:
            present = context.bridge.float32_constructed()
            if present != tuple(value):
                return Outcome(Status.NO_EFFECT, f"Layers are constructed in float32 by {present or 'no pattern'}.")
            return Outcome(Status.PENDING, "Set before the first layer; the layers are looked at once they exist.")
        layers = context.bridge.layers(context.model)
        dtypes = context.bridge.compute_dtypes(context.model)
        paths = [path for each in patterns_of(value, layers) for path in each.paths if path in dtypes]
        wrong = [path for path in paths if dtypes[path] in ("float16", "bfloat16")]
        observed = {"islands": {path: dtypes[path] for path in paths}}
        if wrong:
            return Outcome(Status.NO_EFFECT, f"Not in float32: {listed(wrong)}.", observed)
        if not paths:
            return Outcome(Status.NO_EFFECT, f"No layer of the model matches {', '.join(value)}.", observed)
        return Outcome(Status.APPLIED, f"In float32: {listed(paths)}.", observed)

    def undo(self, context: Context) -> bool:
        """Layers that are constructed later are as the script makes them; those that exist stay."""
        end = context.saved.pop(self.name, None)
        if end is not None:
            end()
        return end is not None and context.model is None
