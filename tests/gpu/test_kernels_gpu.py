"""Keras 3's layers on the GPU's own kernels, against Keras. Skips itself, and says so, where there is no GPU.

``python -m tests.gpu.test_kernels_gpu`` runs it without pytest and prints how far apart the two are.
"""

from __future__ import annotations

import json
import traceback
from typing import Any, Callable

import numpy as np

from tests.gpu.test_knobs_gpu import has_gpu
from tests.stack import KERAS3, keras, tf

SKIP = "" if has_gpu() and KERAS3 else "no GPU here: nvidia-smi names none" if KERAS3 else "the kernels of Keras 3"
try:
    import pytest

    pytestmark = pytest.mark.skipif(bool(SKIP), reason=SKIP)
except ImportError:  # run as a program on a host without pytest
    pass

layers = keras.layers


def recurrent(kind: str, policy: str, mask: str, **arguments: Any) -> dict[str, float]:
    """How far outputs, states and gradients are apart from what Keras computes here, relative to the largest value.

    In float32 they are held to Keras's loop. In float16 that loop rounds in every time step and is itself as far from
    the float32 results as the limit. Without a mask they are then held to what Keras 3 runs on this GPU, which is cuDNN
    too. With one Keras 3 fails, or is wrong (0.77 of the largest value, seen on an NVIDIA H200), so that what counts is
    how far they are from the float32 results, as a vector: no farther than the limit, or than Keras's loop.
    """
    from tests.tensorflow.kernel_cases import MASKS, far, layer, recurrent_passes, served

    given = {"return_sequences": True, "return_state": True, **arguments}
    exact = policy == "float32"
    found = recurrent_passes(served(layer(kind, policy, **given)), MASKS[mask], graph=True)
    loop = recurrent_passes(layer(kind, policy, use_cudnn=False, **given), MASKS[mask], graph=True)
    keras_own = loop
    if not exact and MASKS[mask] is None:
        keras_own = recurrent_passes(layer(kind, policy, **given), MASKS[mask], graph=True)
    results = 2 + (kind == "lstm")
    apart = [far(mine, other) for mine, other in zip(found, keras_own)]
    figures = {"results": max(apart[:results]), "gradients": max(apart[results:])}
    if not exact:
        wanted = recurrent_passes(layer(kind, "float32", use_cudnn=False, **given), MASKS[mask], graph=True)
        figures["from_float32"] = max(map(_distance, found, wanted))
        figures["loop_from_float32"] = max(map(_distance, loop, wanted))
        figures["masked"] = float(MASKS[mask] is not None)
    return figures


def _distance(found: Any, wanted: Any) -> float:
    """Length of the difference, relative to the length of what is wanted."""
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    return float(np.linalg.norm(found - wanted) / max(float(np.linalg.norm(wanted)), 1e-6))


def normalised(shape: tuple[int, ...], policy: str, training: bool, **arguments: Any) -> dict[str, float]:
    """The same of batch normalisation, fused and as Keras composes it."""
    from tests.tensorflow.kernel_cases import far, norm_passes, pair

    plain, fused = pair(shape, policy, **arguments)
    numbers = np.random.default_rng(1)
    x = numbers.normal(2.0, 3.0, shape).astype("float32")
    seed = numbers.normal(size=shape).astype("float32")
    wanted, found = norm_passes(plain, x, seed, training), norm_passes(fused, x, seed, training)
    assert len(found["fused"]) == 1 and not wanted["fused"]
    pairs = zip(found["gradients"], wanted["gradients"])
    return {
        "results": far(found["output"], wanted["output"]),
        "gradients": max(far(mine, keras_own) for mine, keras_own in pairs),
        "statistics": max(far(mine, keras_own) for mine, keras_own in zip(found["moved"], wanted["moved"])),
    }


def cases() -> dict[str, tuple[Callable[[], dict[str, float]], float]]:
    """What is compared, and how far apart it may be."""
    found: dict[str, tuple[Callable[[], dict[str, float]], float]] = {}
    for policy, limit in (("float32", 1e-5), ("mixed_float16", 1e-3)):
        for kind in ("lstm", "gru"):
            for mask in ("none", "right", "left", "empty row"):
                found[f"{kind} {policy} mask {mask}"] = (
                    lambda kind=kind, policy=policy, mask=mask: recurrent(kind, policy, mask),
                    limit,
                )
        found[f"lstm {policy} backwards"] = (
            lambda policy=policy: recurrent("lstm", policy, "right", go_backwards=True),
            limit,
        )
    for policy, limit in (("float32", 1e-5), ("mixed_float16", 1e-3)):
        for shape in ((32, 9, 8, 16), (32, 16), (16, 20, 16), (4, 5, 6, 7, 8)):
            found[f"norm {policy} rank {len(shape)}"] = (
                lambda shape=shape, policy=policy: normalised(shape, policy, True),
                limit,
            )
        found[f"norm {policy} channels first"] = (
            lambda policy=policy: normalised((16, 8, 9, 7), policy, True, axis=1),
            limit,
        )
        found[f"norm {policy} inference"] = (lambda policy=policy: normalised((16, 9, 7, 8), policy, False), limit)
    return found


def is_good(found: dict[str, float], limit: float) -> bool:
    """Whether a case is within its limit."""
    if found.get("masked"):
        return found["from_float32"] <= max(limit, found["loop_from_float32"])
    shown = ("results", "gradients", "statistics")
    return all(value <= limit for name, value in found.items() if name in shown)


def fitted() -> dict[str, Any]:
    """A fit with the callback: how its settings ended, and the kernels of the traced step."""
    import tfvolta

    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        inputs = keras.Input((8,), dtype="int32")
        x = layers.Embedding(50, 16)(inputs)
        x = layers.LSTM(16, return_sequences=True)(x)
        x = layers.BatchNormalization()(x)
        x = layers.Bidirectional(layers.GRU(16))(x)
        model = keras.Model(inputs, layers.Dense(1, dtype="float32")(x))
        model.compile(keras.optimizers.Adam(0.01), "mse")
        callback = tfvolta.callbacks.Kernels()
        tokens, y = np.arange(256).reshape(32, 8) % 50, np.ones((32, 1), "float32")
        losses = model.fit(tokens, y, batch_size=8, epochs=4, verbose=0, callbacks=[callback]).history["loss"]
        graph = callback.bridge.train_graph(model)
        return {
            "losses": losses,
            "statuses": {name: ending.outcome.status.value for name, ending in callback.session.endings.items()},
            "operations": {
                name: number // graph.traces
                for name, number in graph.operations.items()
                if name.startswith(("Cudnn", "FusedBatchNormV3", "TensorScatter"))
            },
        }
    finally:
        keras.config.set_dtype_policy("float32")


def test_both_are_equal() -> None:
    apart = {name: (run(), limit) for name, (run, limit) in cases().items()}
    assert {name: found for name, (found, limit) in apart.items() if not is_good(found, limit)} == {}


def test_a_fit_runs_the_kernels() -> None:
    seen = fitted()
    assert seen["statuses"] == dict.fromkeys(("fused_batch_norm", "cudnn_rnn", "fused_update"), "APPLIED")
    assert seen["operations"]["FusedBatchNormV3[float16]"] == 1
    assert (
        seen["operations"]["CudnnRNNV3:time_major[float16]"] == 3
        and "TensorScatterUpdate[bool]" not in seen["operations"]
    )
    assert seen["losses"][-1] < seen["losses"][0]


def main() -> None:
    for name, (run, limit) in cases().items():
        try:
            found: dict[str, Any] = run()
            found["good"] = is_good(found, limit)
        except Exception:  # what goes wrong is printed, and the others still run
            found = {"error": traceback.format_exc()[-600:]}
        print(json.dumps({"case": name, "limit": limit, **found}), flush=True)
    print(json.dumps({"fit": fitted()}), flush=True)
    print(json.dumps({"gpus": [device.name for device in tf.config.list_physical_devices("GPU")]}), flush=True)


if __name__ == "__main__":
    main()
