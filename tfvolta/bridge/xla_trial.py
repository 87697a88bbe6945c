"""Whether XLA can compile a train step, found out before the step runs: its traced graph is lowered to XLA's own form.

Keras marks the function that XLA shall compile (``_XlaMustCompile``) and nests it in the train function. Tracing the
train function for the running fit's iterator takes no batch from it; TensorFlow keeps the trace, and training uses it.
XLA's translator then lowers the marked function, which is where it refuses operations; nothing is compiled for a GPU.
Source: tensorflow/compiler/jit/get_compiler_ir.cc; ``TF_GetCompilerIr`` in tensorflow/python/eager/context.py.
"""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from typing import Any, Iterator, MutableMapping, Optional

import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from tfvolta.bridge import graphs, xla_data, xla_faults
from tfvolta.bridge.base import XlaFault, XlaTrial
from tfvolta.bridge.xla_faults import MarkedFunction

# Rows of a batch where the data do not say. Any number will do: XLA refuses operations and not sizes.
_ROWS = 4

_MERGES = (
    "the step merges its replicas, which a step compiled inside each of them cannot: it assigns a variable whose"
    " aggregation is only_first_replica, or calls merge_call"
)

_tried: MutableMapping[Any, dict[str, XlaTrial]] = weakref.WeakKeyDictionary()


def try_step(model: Any, layers: list[tuple[str, Any]], iterator: Any, rows: Optional[int]) -> XlaTrial:
    """Traces a model's train function for an iterator and lowers what XLA shall compile of it.

    With several replicas the operations are only looked up: lowering a collective waits for the other replicas.

    Args:
        model: A compiled model whose train function exists.
        layers: Its layers by path.
        iterator: What the train function will be called with.
        rows: Rows of a full batch; None where not known.

    Returns:
        What was found. A function that was tried before is not lowered again.
    """
    alone = int(model.distribute_strategy.num_replicas_in_sync) == 1
    unfit = xla_data.faults(getattr(iterator, "element_spec", None))
    if unfit:
        return XlaTrial(unfit, lowered=False)
    try:
        marked = list(marked_functions(model, iterator))
    except Exception as error:  # the step cannot be traced: the call that follows says so in Keras's words
        merges = not alone and "merge_call" in str(error)  # which only a compiled step cannot do
        return XlaTrial((xla_faults.unnamed(_MERGES),)) if merges else XlaTrial(lowered=False)
    known = _tried.setdefault(model, {})
    trials = []
    for function in marked:
        if function.name not in known:
            known[function.name] = _try(function, layers, rows) if alone else _looked_up(function, layers)
            trials.append(known[function.name])
        elif known[function.name].faults:
            trials.append(known[function.name])
    faults = {(fault.operation, fault.layer): fault for trial in trials for fault in trial.faults}
    return XlaTrial(
        tuple(faults.values()),
        sum(trial.seconds for trial in trials),
        all(trial.lowered for trial in trials),
    )


def marked_functions(model: Any, iterator: Any) -> Iterator[MarkedFunction]:
    """The functions in the traced train function that XLA shall compile."""
    functions = graphs.outermost(getattr(model, "train_function", None))
    if not functions or tf.config.functions_run_eagerly():
        return
    library = functions[0].get_concrete_function(iterator).graph._functions
    graphs_of = {name: function.graph for name, function in library.items()}
    marked = [MarkedFunction(name, graphs_of[name], graphs_of) for name, each in library.items() if is_marked(each)]
    # What a marked function calls is compiled with it. Keras 2's optimisers mark the update of each variable, too.
    inner = {name for function in marked for name in function.calls()}
    yield from (function for function in marked if function.name not in inner)


def marked_definitions(model: Any, iterator: Any) -> Iterator[tuple[str, dict[str, Any], MarkedFunction]]:
    """The functions that XLA shall compile, each with the definitions of all functions of the step by name."""
    marked = list(marked_functions(model, iterator))
    if marked:
        library = graphs.outermost(model.train_function)[0].get_concrete_function(iterator).graph._functions
        definitions = {name: _definition(function) for name, function in library.items()}
        yield from ((function.name, definitions, function) for function in marked)


def _definition(function: Any) -> Any:
    return getattr(function, "cached_definition", None) or function.definition


def is_marked(function: Any) -> bool:
    definition = _definition(function)
    return "_XlaMustCompile" in definition.attr and bool(definition.attr["_XlaMustCompile"].b)


def _try(function: MarkedFunction, layers: list[tuple[str, Any]], rows: Optional[int]) -> XlaTrial:
    started = time.perf_counter()
    text = _refusal(function, rows)
    faults: tuple[XlaFault, ...] = ()
    conclusive = text is not None and xla_faults.is_conclusive(text, exact=rows is not None)
    if text is not None:
        faults = xla_faults.without_kernel(function, layers, _platform(function))
        if conclusive:
            faults = xla_faults.named(text, function, layers) or faults or (xla_faults.unnamed(text),)
    return XlaTrial(faults, time.perf_counter() - started, lowered=text is None or conclusive)


def _looked_up(function: MarkedFunction, layers: list[tuple[str, Any]]) -> XlaTrial:
    started = time.perf_counter()
    _register_kernels()
    faults = xla_faults.without_kernel(function, layers, _platform(function))
    return XlaTrial(faults, time.perf_counter() - started, lowered=False)


@functools.cache
def _register_kernels() -> None:
    """TensorFlow registers XLA's kernels when something is lowered for the first time in a process."""
    tf.function(lambda value: value, jit_compile=True).experimental_get_compiler_ir(tf.TensorSpec([1]))()


def _refusal(function: MarkedFunction, rows: Optional[int]) -> Optional[str]:
    """Why a function cannot be lowered; None where it can."""
    captured = function.captured
    if not all(isinstance(tensor, tf.__internal__.EagerTensor) for tensor in captured):
        return "values of the surrounding graph are captured, which are not known before it runs"
    specs = [filled(tensor, rows or _ROWS) for tensor in function.arguments]
    if any(spec is None for spec in specs):
        return "an input of unknown rank"
    context = eager_context.context()
    try:
        context.get_compiler_ir(
            device_name=device_of(captured),
            function_name=function.name,
            flat_args=specs,
            captured_inputs=captured,
            stage="hlo",
            **platform_argument(),
        )
    except Exception as error:  # of whatever kind: the trial must not end a training that might go well
        return str(error)
    return None


def platform_argument() -> dict[str, Any]:
    """The argument that later versions of ``get_compiler_ir`` want besides the device."""
    parameters = inspect.signature(eager_context.context().get_compiler_ir).parameters
    return {"platform_name": None} if "platform_name" in parameters else {}


def filled(tensor: Any, rows: int) -> Optional[tf.TensorSpec]:
    """The spec of an argument with every open dimension filled."""
    if tensor.shape.rank is None:
        return None
    return tf.TensorSpec([rows if size is None else size for size in tensor.shape], tensor.dtype)


def device_of(captured: list[Any]) -> str:
    """The device that the step runs on: a GPU where one of its variables is there, or TensorFlow's first device."""
    # The handle of a variable on a GPU lies in the memory of the CPU; ``device`` names the variable's place.
    names = [str(tensor.device) for tensor in captured if isinstance(tensor, tf.__internal__.EagerTensor)]
    names = names or [device.name for device in tf.config.list_logical_devices()]
    return next((name for name in names if "GPU:" in name), names[0])


def _platform(function: MarkedFunction) -> str:
    return "XLA_GPU_JIT" if "GPU:" in device_of(function.captured) else "XLA_CPU_JIT"
