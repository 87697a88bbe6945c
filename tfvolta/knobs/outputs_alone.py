"""Models that multiply in their output layers alone, which stay in float32: half precision brings them nothing."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge.layer_patterns import with_inner
from tfvolta.config.provenance import origin_of
from tfvolta.knobs.base import Context
from tfvolta.knobs.precision_groups import PrecisionGroups
from tfvolta.outcome import Outcome, Status

_KEY = "mixed_precision.policy"
_FIX = "set mixed_precision.policy: float32 for this model; or float32_output: false, where float16 outputs will do"


def outputs_alone(groups: PrecisionGroups, context: Context) -> bool:
    """Whether every layer that is kept in float32 makes an output, and the config asks for that.

    Args:
        groups: The layers of the model.
        context: Its model and config.
    """
    if not context.config.mixed_precision.float32_output or not groups.islands:
        return False
    paths = [path for path, _ in context.bridge.layers(context.model)]
    return set(groups.islands) <= with_inner(context.bridge.output_layers(context.model), paths)


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
