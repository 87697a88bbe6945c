"""What cuDNN's LSTM and GRU ask TensorFlow for: the size of their reserve, and every allocation of both passes.

The reserve is a result of the operation, so its size is known to the byte; the workspace is among the allocations
that a profile of the call has. One line of JSON for each case; README.md says what the fields are.

    python3 benchmarks/memory_estimate/recurrent.py >> results/DATE_recurrent.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import tensorflow as tf

from tfvolta.bridge.short_profile import short_profile
from tfvolta.footprint.profile import memory_events

STEPS, UNITS = 128, 1024
GATES = {"lstm": 4, "gru": 3}
LEAST = 2**20  # smaller allocations are left out


def forward(mode: str, inputs: Any, state: Any, vector: Any) -> Any:
    """cuDNN's operation, time first, on sequences of full length."""
    steps, batch = inputs.shape[:2]
    return tf.raw_ops.CudnnRNNV3(
        input=inputs,
        input_h=state,
        input_c=state if mode == "lstm" else tf.zeros((), inputs.dtype),
        params=vector,
        sequence_lengths=tf.fill([batch], steps),
        rnn_mode=mode,
        is_training=True,
        time_major=True,
    )


def asked(action: Any) -> list[int]:
    """Bytes of the allocations of an action that are not small, in the order of each thread."""
    found = [event.get("requested_bytes", 0) for event in memory_events(short_profile(action))]
    return [int(size) for size in found if isinstance(size, int) and size >= LEAST]


def line(mode: str, dtype: str, batch: int, steps: int = STEPS, units: int = UNITS) -> dict[str, Any]:
    """One case: reserve, and what each pass asks for."""
    inputs, state = tf.zeros((steps, batch, units), dtype), tf.zeros((1, batch, units), dtype)
    vector = tf.zeros((GATES[mode] * units * (2 * units + 2),), dtype)
    tape = tf.GradientTape(persistent=True)
    with tape:
        tape.watch((inputs, vector))
        result = forward(mode, inputs, state, vector)
    tape.gradient(result.output, (inputs, vector))  # what is made once is made
    value = steps * batch * units * inputs.dtype.size
    reserve = int(result.reserve_space.shape.num_elements()) * inputs.dtype.size
    return {
        "mode": mode,
        "dtype": dtype,
        "batch": batch,
        "steps": steps,
        "units": units,
        "value_bytes": value,
        "reserve_bytes": reserve,
        "reserve_values": round(reserve / value, 4),
        "forward_asks_bytes": asked(lambda: forward(mode, inputs, state, vector)),
        "backward_asks_bytes": asked(lambda: tape.gradient(result.output, (inputs, vector))),
        "tensorflow": tf.__version__,
        "cudnn": tf.sysconfig.get_build_info().get("cudnn_version"),
    }


def main() -> int:
    """Writes the lines; 1 where no GPU is here, on which alone these operations run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128, 256])
    arguments = parser.parse_args()
    if not tf.config.list_physical_devices("GPU"):
        print("cuDNN's operations run on a GPU only, and TensorFlow has none here", file=sys.stderr)
        return 1
    for mode in GATES:
        for dtype in ("float32", "float16"):
            for batch in arguments.batches:
                print(json.dumps(line(mode, dtype, batch)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
