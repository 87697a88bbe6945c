"""The arguments of a ``fit`` whose data are kept and fetched as the section ``input`` asks."""

from __future__ import annotations

from typing import Any

from tfvolta.data.fetching import Fetching, fetched

_KINDS = {
    "arrays": "Keras makes a pipeline of its own from arrays, which lie in memory and are fetched ahead already",
    "other": "The data are of kind {}, of which Keras makes a pipeline of its own",
}


def with_fetching(arguments: dict[str, Any], asked: Fetching, device: str) -> tuple[dict[str, Any], str]:
    """Replaces the data set of a ``fit`` by one that is kept and fetched as asked; validation data stay as they are.

    Args:
        arguments: Arguments of ``fit`` by name.
        asked: What is asked for.
        device: The device for copies ahead of their step; empty for none.

    Returns:
        The arguments for ``fit``, and why nothing was changed; empty where it was.

    Raises:
        ConfigError: The batches cannot be kept.
    """
    import tensorflow as tf

    from tfvolta.data.arguments import all_arrays

    x = arguments.get("x")
    if not isinstance(x, tf.data.Dataset):
        kind = "arrays" if all_arrays(tf.nest.flatten(x)) else "other"
        return arguments, _KINDS[kind].format(type(x).__name__)
    return {**arguments, "x": fetched(x, asked, device)}, ""


def gpu_of(model: Any) -> tuple[str, str]:
    """The GPU to which a model's batches can be copied ahead, or why there is none."""
    import tensorflow as tf

    if type(model.distribute_strategy).__name__ != "_DefaultDistributionStrategy":
        return "", "a strategy copies batches to its devices itself"
    gpus = tf.config.list_logical_devices("GPU")
    return (gpus[0].name, "") if gpus else ("", "TensorFlow has no GPU here")
