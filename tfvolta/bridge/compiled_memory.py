"""What XLA itself says of the memory of a train step, once it has compiled it for the device that the model is on."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from tfvolta.bridge import xla_trial
from tfvolta.bridge.traced_step import data_like
from tfvolta.footprint.buffer_assignment import Buffers, buffers_of

STAGE = "optimized_hlo_proto_serialized"


def compiled_memory(model: Any, iterator: Any, batch: Optional[int]) -> dict[str, Any]:
    """Compiles the marked part of a model's train function for a batch and reads XLA's buffer assignment.

    Compiling takes as long as it does in training, and the result is not kept for training.

    Returns:
        Bytes by kind, ``total_bytes``, ``device`` and ``seconds``; ``reason`` instead where nothing was compiled.
    """
    started = time.perf_counter()
    data = data_like(model, iterator, batch)
    functions = list(xla_trial.marked_functions(model, iter(data)))
    if not functions:
        return {"reason": "XLA does not compile this step"}
    found: list[Buffers] = []
    device = xla_trial.device_of(functions[0].captured)
    for function in functions:
        try:
            found.append(buffers_of(_program(function, batch, device)))
        except Exception as error:  # of whatever kind: it is a figure more, not a need
            return {"reason": f"XLA did not compile the step: {' '.join(str(error).split())[:300]}"}
    largest = max(found, key=lambda buffers: buffers.total)
    return {
        **{f"{name}_bytes": size for name, size in dataclasses.asdict(largest).items()},
        "total_bytes": largest.total,
        "device": device.rsplit("device:", 1)[-1],
        "seconds": round(time.perf_counter() - started, 1),
    }


def _program(function: Any, batch: Optional[int], device: str) -> bytes:
    """The compiled program of a function, with its buffer assignment, as XLA serializes it."""
    specs = [xla_trial.filled(tensor, batch or 1) for tensor in function.arguments]
    program = eager_context.context().get_compiler_ir(
        device_name=device,
        function_name=function.name,
        flat_args=specs,
        captured_inputs=function.captured,
        stage=STAGE,
        **xla_trial.platform_argument(),
    )
    return program if isinstance(program, bytes) else tf.compat.as_bytes(program)
