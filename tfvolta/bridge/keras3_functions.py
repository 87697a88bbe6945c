"""Keras 3: the train function's life, XLA compilation of the model, and batches per call."""

from __future__ import annotations

import warnings
from typing import Any, Optional

import keras
import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

from tfvolta.bridge import graphs, keras3_layers, keras3_saving, keras3_step_loop
from tfvolta.bridge.base import JitState

_NO_XLA = {
    "LSTM": "cuDNN's LSTM kernel cannot be compiled by XLA; use_cudnn=False lets it, with a slower loop",
    "GRU": "cuDNN's GRU kernel cannot be compiled by XLA; use_cudnn=False lets it, with a slower loop",
    "StringLookup": "strings have no XLA type",
    "TextVectorization": "strings have no XLA type",
    "IntegerLookup": "hash tables are no XLA resource",
    "Hashing": "string hashing has no XLA kernel",
    "HashedCrossing": "string hashing has no XLA kernel",
}


def reset(model: Any) -> None:
    """Makes the next step trace anew.

    A function that exists is made again rather than cleared: inside a fit Keras calls ``train_function`` without
    looking whether it is there.
    """
    for kind in ("train", "test", "predict"):
        if getattr(model, f"{kind}_function", None) is not None:
            getattr(model, f"make_{kind}_function")(force=True)


def set_jit(model: Any, value: bool) -> None:
    """Sets ``jit_compile``; the train function is made anew because Keras 3 reads the attribute only then.

    Where all of it is so already, the function stays: making it anew would trace and compile it again in every fit.
    """
    if _jit_is(model, value):
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Model doesn't support `jit_compile=True`")  # jit() gives the reason
        model.jit_compile = value
    keras3_saving.refresh(model, jit_compile=model.jit_compile)
    keras3_saving.ask(model, "jit_compile", value)
    reset(model)


def _jit_is(model: Any, value: bool) -> bool:
    """Whether the attribute, what was asked for and the train function that exists agree on a value."""
    functions = graphs.tf_functions(getattr(model, "train_function", None))
    return (
        bool(functions)
        and any(function._jit_compile for function in functions) is value
        and model.jit_compile is value
        and keras3_saving.asked(model, "jit_compile") is value
    )


def jit(model: Any) -> JitState:
    """What the train step gets, and why not XLA where it gets none."""
    requested = keras3_saving.asked(model, "jit_compile")
    effective = bool(model.jit_compile) and not model.run_eagerly
    if effective:
        return JitState(requested, True)
    if model.run_eagerly:
        return JitState(requested, False, "run_eagerly=True: no train step is compiled at all")
    unsupported = [f"{path} ({type(layer).__name__})" for path, layer in _without_jit(model)]
    if unsupported:
        return JitState(requested, False, f"Keras 3 switches XLA off for layers that say so: {', '.join(unsupported)}")
    if requested is True:
        return JitState(requested, False, "jit_compile was set to False after it had been asked for")
    return JitState(requested, False, "Keras 3 resolved jit_compile to False at compile: " + _auto_reason(model))


def _auto_reason(model: Any) -> str:
    """Why Keras's ``jit_compile='auto'`` is False here; the model keeps no record of 'auto' itself."""
    if all(device.device_type == "CPU" for device in tf.config.list_physical_devices()):
        return "'auto' means no XLA on a machine without an accelerator"
    if model._distribute_strategy:
        return "'auto' means no XLA under a distribution strategy"
    if is_op_determinism_enabled():
        return "'auto' means no XLA with deterministic operations"
    return "compile was called with jit_compile=False"


def xla_obstacles(model: Any) -> list[str]:
    """See ``tfvolta.bridge.base.Bridge.xla_obstacles``; what only a trial can find (``py_function``) is not here."""
    found = []
    for path, layer in _without_jit(model):
        kind = next((cls.__name__ for cls in type(layer).__mro__ if cls.__name__ in _NO_XLA), None)
        why = _NO_XLA[kind] if kind else "the layer declares supports_jit=False"
        found.append(f"{path} ({type(layer).__name__}): {why}; Keras 3 switches XLA off for the whole model")
    for path, layer in keras3_layers.named_layers(model):
        kinds = [kind for kind in ("sparse", "ragged") if getattr(layer, kind, False)]
        kinds += ["string"] if layer.dtype == "string" else []
        if keras3_layers.is_input(layer) and kinds:
            found.append(f"{path} (InputLayer): {kinds[0]} tensors have no XLA type")
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync > 1 and not keras3_step_loop.compiles_inside(model):
        found.append(
            f"{type(strategy).__name__}: a replica's step cannot be compiled by itself here, and Keras 3 compiles"
            " around all of them, so that one XLA cluster would hold variables of several devices"
            " ('Trying to access resource ... located in device')"
        )
    return found


def _without_jit(model: Any) -> list[tuple[str, Any]]:
    named = [(model.name, model), *keras3_layers.named_layers(model)]
    return [(path, layer) for path, layer in named if not layer.supports_jit]


def set_steps_per_execution(model: Any, steps: int) -> None:
    """Sets batches per call of the train function; inside a fit the data iterator has bound the old number already."""
    model.steps_per_execution = steps
    keras3_saving.refresh(model, steps_per_execution=steps)
    reset(model)


def is_traced(model: Any) -> bool:
    """Whether the train function exists and was traced."""
    return graphs.is_traced(getattr(model, "train_function", None))


def own_train_step(model: Any) -> bool:
    """Whether the model's train step is not Keras's."""
    return getattr(model.train_step, "__func__", None) is not keras.Model.train_step


def examples_seen(model: Any) -> Optional[int]:
    """Examples of the running epoch; see ``tfvolta.bridge.base.Bridge.examples_seen``.

    Keras 3 weighs each batch's loss with its size. The tracker is reset by each evaluation too, so read it before one.
    """
    tracker = getattr(model, "_loss_tracker", None)
    if tracker is None:
        return None
    count = round(float(tf.convert_to_tensor(tracker.count.value)))  # summed over the replicas of a strategy
    return None if count == 0 and own_train_step(model) else count
