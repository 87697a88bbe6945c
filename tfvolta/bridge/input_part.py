"""The part of every bridge that looks at the data set of the running ``fit``.

Source: tensorflow/python/data/ops/options.py, prefetch_op.py and cache_op.py, the same in TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge import fit_input, half_input, pipeline, running_fit, sequence_data
from tfvolta.bridge.input_records import HalfInputs, InputState


class InputPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.input_records.Inputs``."""

    def sequence_report(self, model: Any) -> Optional[Any]:
        """How the sequences of the running fit were batched; None where they were not, or outside a fit."""
        dataset, _ = fit_input.given(model)
        return None if dataset is None else sequence_data.noted(dataset)

    def input_state(self, model: Any) -> Optional[InputState]:
        """How the data of the running fit are prepared and fetched; None outside a fit."""
        data = running_fit.fit_data(model)
        if data is None:
            return None
        dataset, kind = fit_input.given(model)
        if dataset is None:
            return InputState(data.kind)
        kind = ("arrays" if data.kind == "arrays" else "dataset") if kind == "other" else kind
        return state(dataset, kind)

    def half_inputs(self, model: Any) -> HalfInputs:
        """Which inputs of a model can be given in float16 with the same results."""
        return half_input.half_inputs(model)


def state(dataset: Any, kind: str = "dataset") -> InputState:
    """How a data set is prepared and fetched, read from its transformations.

    What comes before a copy to a device is iterated apart, with its own options; those set behind it reach nothing.
    """
    copied = pipeline.copy_to_device(dataset)
    return InputState(
        kind=kind,
        options=dict(_options((dataset if copied is None else copied[0]).options())),
        prefetch=pipeline.prefetch_buffer(dataset),
        device=pipeline.device(dataset),
        cache=pipeline.cache_place(dataset),
        half=_half_features(dataset.element_spec),
    )


def _half_features(spec: Any) -> int:
    features = spec[0] if isinstance(spec, tuple) else spec
    return sum(getattr(part, "dtype", None) == tf.float16 for part in tf.nest.flatten(features))


def _options(options: Any) -> Iterator[tuple[str, Any]]:
    """Options that are set, by the key of the section ``input``."""
    found = {
        "private_threads": options.threading.private_threadpool_size,
        "max_intra_op_threads": options.threading.max_intra_op_parallelism,
        "autotune": options.autotune.enabled,
        "ram_budget_mb": _mebibytes(options.autotune.ram_budget),
        "map_parallelization": options.experimental_optimization.map_parallelization,
        "deterministic": options.deterministic,
        "slack": options.experimental_slack,
    }
    yield from ((name, value) for name, value in found.items() if value is not None)


def _mebibytes(size_bytes: Optional[int]) -> Optional[int]:
    return None if size_bytes is None else size_bytes // 2**20


def with_options(dataset: Any, asked: dict[str, Any]) -> Any:
    """A data set with tf.data's options set; ``asked`` as in ``InputState.options``."""
    options = tf.data.Options()
    for name, value in asked.items():
        if name == "private_threads":
            options.threading.private_threadpool_size = value
        elif name == "max_intra_op_threads":
            options.threading.max_intra_op_parallelism = value
        elif name == "autotune":
            options.autotune.enabled = value
        elif name == "ram_budget_mb":
            options.autotune.ram_budget = value * 2**20
        elif name == "map_parallelization":
            options.experimental_optimization.map_parallelization = value
        elif name == "deterministic":
            options.deterministic = value
        else:
            options.experimental_slack = value
    return dataset.with_options(options)
