"""What a contender knows of itself after training: memory, work of a step, devices and versions."""

from __future__ import annotations

import resource
import warnings
from typing import Any, Optional

from tfvolta.errors import InputBoundWarning


def figures(tf: Any, model: Any, batch: int) -> dict[str, Any]:
    """Figures as JSON values.

    Args:
        tf: TensorFlow.
        model: After its fit.
        batch: Examples of a step in this process.
    """
    from tfvolta.bridge import bridge_for

    bridge = bridge_for(model)
    work, reason = _multiply_adds(bridge, model, batch)
    return {
        "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # KiB; getrusage(2)
        "device_peak_bytes": _device_peaks(),
        "multiply_adds": work,
        "multiply_adds_unknown": reason,
        "replicas": int(model.distribute_strategy.num_replicas_in_sync),
        "compute_dtype": _most_used(bridge, model),
        "tf32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "devices": _device_names(tf),
        "stack": bridge.stack,
        "versions": {"tensorflow": tf.__version__, "keras": str(bridge.keras.__version__)},
    }


def waiting_for_data(model: Any, data: Any) -> dict[str, Any]:
    """Which share of a step waits for its data, from a fit of two epochs more: looking must not disturb what is timed.

    Args:
        model: After its fit.
        data: One epoch.
    """
    from tfvolta.callbacks.input_share import InputShare

    share = InputShare()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputBoundWarning)
            model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[share])
    except Exception as error:  # what was measured already must not be lost
        return {"share": None, "diagnosis": f"Not measured: {type(error).__name__}: {error}"}
    return share.summary()


def _device_peaks() -> dict[str, int]:
    from tfvolta.bridge.allocator_figures import gpu_figures

    return {name: found["peak_bytes"] for name, found in gpu_figures().items() if found is not None}


def _device_names(tf: Any) -> list[str]:
    gpus = tf.config.list_physical_devices("GPU")
    visible = tf.config.get_visible_devices("GPU")
    details = tf.config.experimental.get_device_details
    return [str(details(gpu).get("device_name", "unknown")) for gpu in gpus if gpu in visible]


def _multiply_adds(bridge: Any, model: Any, batch: int) -> tuple[Optional[int], str]:
    """Multiplications of a forward pass of so many examples, each with its addition; or why they are not known."""
    try:
        layers = bridge.layer_figures(model, batch)
    except Exception as error:  # a look at the model afterwards must not fail the measurement
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    unknown = [layer.name for layer in layers if layer.multiply_adds is None]
    if unknown:
        return None, f"not known for {', '.join(unknown[:3])}"
    return sum(layer.multiply_adds or 0 for layer in layers), ""


def _most_used(bridge: Any, model: Any) -> str:
    """The type in which most layers compute."""
    import collections

    return str(collections.Counter(bridge.compute_dtypes(model).values()).most_common(1)[0][0])
