"""Layers that keep computing in float32 inside a mixed-precision model."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.bridge.layer_patterns import patterns_of, with_inner
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.outputs_alone import nothing_to_gain
from tfvolta.knobs.precision_groups import COMPUTE_DTYPES, listed
from tfvolta.knobs.retrofit import ensure_retrofit, undo_retrofit
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


class Float32Islands(Knob):
    """Keeps named layers, layers of named classes, and the model's outputs in float32, for numerical range.

    Binds: when the train step is traced. Set together with the retrofit, in one change of the model.
    """

    name = "float32_islands"
    keys = ("mixed_precision.float32_layers", "mixed_precision.float32_output")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("P4", "P5")
    changes_results = True

    def value(self, config: Any) -> Optional[Any]:
        settings = config.mixed_precision
        if settings is None or settings.policy == "float32":
            return None
        if not settings.float32_layers and not settings.float32_output:
            return None
        return {"layers": list(settings.float32_layers), "output": settings.float32_output}

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        what = [f"layers that match {', '.join(value['layers'])}"] if value["layers"] else []
        what += ["the layers that make the outputs"] if value["output"] else []
        return Forecast(Status.APPLIED, f"{' and '.join(what).capitalize()} compute in float32.")

    def apply(self, value: Any, context: Context) -> None:
        del value
        ensure_retrofit(context)

    def verify(self, value: Any, context: Context) -> Outcome:
        dtypes = context.bridge.compute_dtypes(context.model)
        layers = context.bridge.layers(context.model)
        outputs = context.bridge.output_layers(context.model) if value["output"] else []
        patterns = patterns_of(value["layers"], layers)
        wanted = {*outputs, *(path for each in patterns for path in each.paths)}
        islands = {path: dtypes[path] for path in sorted(with_inner(wanted, dtypes)) if path in dtypes}
        absent = [each for each in patterns if not each.paths]
        unmatched = [each.pattern for each in absent]
        observed: dict[str, Any] = {"islands": islands, "unmatched": unmatched, "outputs": list(outputs)}
        wrong = [path for path, dtype in islands.items() if dtype in ("float16", "bfloat16")]
        if wrong:
            return Outcome(Status.NO_EFFECT, f"Not in float32: {listed(wrong)}.", observed)
        if unmatched and not _is_complete(context):
            return Outcome(
                Status.PENDING, f"No layer matches {', '.join(unmatched)} yet; the first call shows them all.", observed
            )
        if unmatched:
            classes = sorted({type(layer).__name__ for _, layer in layers})
            return Outcome(
                Status.NO_EFFECT,
                f"No layer matches {', '.join(unmatched)}; the model has the classes {listed(classes)} and the layers"
                f" {listed(sorted(path for path, _ in layers))}.",
                observed,
                "; ".join(each.suggestion() for each in absent),
            )
        half = COMPUTE_DTYPES[context.config.mixed_precision.policy]
        if half not in dtypes.values():
            return _nothing_half(half, set(islands) <= with_inner(outputs, dtypes), observed, context)
        if value["output"] and not outputs:
            return Outcome(
                Status.UNVERIFIABLE,
                "Which layers make the outputs of this subclassed model cannot be known; name them in float32_layers.",
                observed,
            )
        return Outcome(
            Status.APPLIED,
            f"In float32: {listed(list(islands)) or 'layers without a precision of their own'}.",
            observed,
        )

    def undo(self, context: Context) -> bool:
        """Islands are part of the retrofit's change of the model, so they are taken back with it."""
        return undo_retrofit(context)


def _is_complete(context: Context) -> bool:
    """Whether all layers of the model are there: one that was never called may make more."""
    return bool(getattr(context.model, "built", True)) or context.bridge.is_traced(context.model)


def _nothing_half(half: str, outputs_alone: bool, observed: dict[str, Any], context: Context) -> Outcome:
    """How islands end in a model without a layer in half precision; it may have nothing but output layers."""
    why = f"No layer computes in {half}, so there is nothing to keep apart from it."
    if not (outputs_alone and observed["outputs"]):
        return Outcome(Status.NO_EFFECT, why, observed)
    if not _is_complete(context):
        return Outcome(Status.PENDING, f"{why} The first call shows all layers.", observed)
    return nothing_to_gain(f"{why} Its only layers make the outputs.", observed, context)
