"""Features in float16 before they travel to a device, where the model would cast them there as its first operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfvolta.bridge.input_records import HalfInputs


def with_half(arguments: dict[str, Any], inputs: HalfInputs) -> tuple[dict[str, Any], str]:
    """Casts those features of a ``fit`` to float16 that every layer of the model casts; labels and weights never.

    The cast comes first, so that a cache keeps halves, and rounds as a GPU does: to the nearest, ties to even.

    Args:
        arguments: Arguments of ``fit`` by name.
        inputs: What the model's layers do with each input.

    Returns:
        The arguments for ``fit``, and why parts of the features stay as they are; empty where all were cast.
    """
    import tensorflow as tf

    from tfvolta.bridge import pipeline

    data = arguments.get("x")
    if inputs.why:
        return arguments, inputs.why
    if not isinstance(data, tf.data.Dataset):
        return arguments, f"fit is given {type(data).__name__}, which is not a tf.data.Dataset"
    if pipeline.device(data):
        return arguments, "the script's data set ends with a copy to a device"
    spec = data.element_spec
    reasons = _reasons(spec[0] if isinstance(spec, tuple) else spec, inputs)
    chosen = {place for place, why in reasons.items() if not why}
    left = "; ".join(f"{place}: {why}" for place, why in reasons.items() if why)
    if not chosen:
        return arguments, left

    def cast(*element: Any) -> Any:
        features = _cast(element[0], chosen)
        return (features, *element[1:]) if isinstance(spec, tuple) else features

    made = data.map(cast, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return {**arguments, "x": made}, left


def _reasons(features: Any, inputs: HalfInputs) -> dict[Any, str]:
    """Why each part of the features stays as it is, by its key or place; empty where it is cast."""
    known = dict(zip(inputs.names, inputs.reasons))
    if isinstance(features, dict):
        if set(features) != set(known):
            return {"the data": "its keys are not the names of the model's inputs"}
        return {name: known[name] or _part_reason(part) for name, part in features.items()}
    parts = list(features) if isinstance(features, (tuple, list)) else [features]
    if len(parts) != len(known):
        return {"the data": f"{len(parts)} parts for {len(known)} inputs of the model"}
    return {number: why or _part_reason(part) for number, (part, why) in enumerate(zip(parts, inputs.reasons))}


def _part_reason(part: Any) -> str:
    import tensorflow as tf

    if not isinstance(part, tf.TensorSpec):
        return f"{type(part).__name__}, not a dense tensor"
    # A double would be rounded twice by the model, which differs from once in some last bits.
    return "" if part.dtype == tf.float32 else f"{part.dtype.name}, not float32"


def _cast(features: Any, chosen: set[Any]) -> Any:
    import tensorflow as tf

    def half(place: Any, part: Any) -> Any:
        return tf.cast(part, tf.float16) if place in chosen else part

    if isinstance(features, dict):
        return {name: half(name, part) for name, part in features.items()}
    if isinstance(features, (tuple, list)):
        return type(features)(half(number, part) for number, part in enumerate(features))
    return half(0, features)
