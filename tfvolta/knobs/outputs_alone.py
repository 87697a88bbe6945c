"""Models that multiply in their output layers alone, which stay in float32: half precision brings them nothing."""

from __future__ import annotations

from typing import Any, Iterable

from tfvolta.bridge.layer_patterns import with_inner
from tfvolta.config.provenance import origin_of
from tfvolta.knobs.base import Context
from tfvolta.knobs.own_precision import multiplied_in
from tfvolta.outcome import Outcome, Status

_KEY = "mixed_precision.policy"
_FIX = "set mixed_precision.policy: float32 for this model; or float32_output: false, where float16 outputs will do"


def outputs_alone(names: Iterable[str], context: Context) -> bool:
    """Whether layers that make the outputs, and are kept in float32 for that, are all that multiplies in float32.

    Args:
        names: Names of the float32 matrix products and convolutions of the traced step.
        context: Its model and config.
    """
    if not context.config.mixed_precision.float32_output:
        return False
    layers = context.bridge.layers(context.model)
    outputs = with_inner(context.bridge.output_layers(context.model), [path for path, _ in layers])
    found = multiplied_in(names, context.model, layers)
    return bool(found) and found <= outputs


def nothing_to_gain(why: str, observed: dict[str, Any], context: Context) -> Outcome:
    """How a setting ends that finds no layer to serve.

    A config file is kept for many models, and that one of them has no such layer is no fault of the file. Who asks for
    half precision in an override or an argument speaks of this model, and is told that nothing comes of it.

    Args:
        why: What was found.
        observed: What was read back.
        context: Its config says where the policy comes from.
    """
    said = f"{why} Mixed precision gains nothing in this model."
    if origin_of(context.config, _KEY).kind in ("default", "file"):
        return Outcome(Status.NOT_APPLICABLE, said, observed)
    return Outcome(Status.NO_EFFECT, said, observed, _FIX)
