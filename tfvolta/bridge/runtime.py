"""What has already happened in this process, read from TensorFlow's and the operating system's own state.

Nothing here imports or starts TensorFlow: modules are looked up in ``sys.modules``, so a question asked
before ``import tensorflow`` is answered "not yet" and changes nothing.
"""

from __future__ import annotations

import gc
import glob
import os
import sys
from typing import Any, Callable, Iterable, Optional

from tfvolta.phase import Closure, Moment

_CONTEXT = "tensorflow.python.eager.context"
_FUNCTION = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
_MAPS = "/proc/self/maps"


def _context() -> Any:
    """TensorFlow's eager context object, or None; ``context.context()`` would create one."""
    module = sys.modules.get(_CONTEXT)
    return getattr(module, "_context", None)


def tensorflow_imported() -> bool:
    """Whether TensorFlow was imported, by whatever name: ``tensorflow``, ``tensorflow.compat.v2``, or through Keras."""
    return "tensorflow" in sys.modules or "tensorflow.python" in sys.modules


def devices_listed() -> bool:
    """Whether the physical devices were listed in this process, which starts the CUDA driver."""
    context = _context()
    return context is not None and getattr(context, "_physical_devices", None) is not None


def context_initialized() -> bool:
    """Whether the eager context was initialised: devices and allocators exist."""
    context = _context()
    return context is not None and bool(getattr(context, "_initialized", False))


def before_start(action: Callable[[], None]) -> Callable[[], None]:
    """Does something once, right before TensorFlow starts its devices, whoever makes it start.

    Args:
        action: Called without TensorFlow's devices; it may start them itself. What it raises reaches the caller.

    Returns:
        A function that takes the request back; after the start it does nothing.

    Raises:
        KeyError: TensorFlow is not imported yet.
    """
    context_class = sys.modules[_CONTEXT].Context
    start = context_class.ensure_initialized

    def take_back() -> None:
        if context_class.ensure_initialized is start_after_action:
            context_class.ensure_initialized = start

    def start_after_action(context: Any) -> None:
        take_back()
        if not context._initialized:
            action()
        start(context)

    context_class.ensure_initialized = start_after_action
    return take_back


def own_devices(devices: Iterable[Any]) -> list[Any]:
    """Those of TensorFlow's logical devices that are this process's own.

    A process that has joined a cluster, such as the chief of parameter servers, lists the devices of all others too.

    Args:
        devices: From ``tf.config.list_logical_devices``.
    """
    server = getattr(_context(), "_server_def", None)
    if server is None:
        return list(devices)
    own = f"/job:{server.job_name}/replica:0/task:{server.task_index}/"
    return [device for device in devices if device.name.startswith(own)]


def loaded_libraries() -> set[str]:
    """File names of the shared libraries that are mapped into this process; empty where /proc is absent."""
    try:
        with open(_MAPS, encoding="utf-8", errors="replace") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line and "/" in line}
    except OSError:
        return set()
    return {os.path.basename(path) for path in paths}


def cuda_driver_open() -> bool:
    """Whether this process holds an NVIDIA device file, whoever opened it (TensorFlow, PyTorch, CuPy)."""
    for link in glob.glob("/proc/self/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("/dev/nvidia") and target[len("/dev/nvidia") :].isdigit():
            return True
    return False


def thread_names() -> list[str]:
    """Names of this process's threads as the kernel holds them, such as ``gpu_private_0``."""
    names = []
    for path in glob.glob("/proc/self/task/*/comm"):
        try:
            with open(path, encoding="utf-8") as file:
                names.append(file.read().strip())
        except OSError:
            continue  # the thread ended meanwhile
    return names


def xla_compiled() -> bool:
    """Whether XLA has compiled something: its thread pool exists, or a traced ``jit_compile`` function does."""
    if not tensorflow_imported():
        return False
    # TensorFlow 2.21 names XLA's pool; 2.15 does not, so its functions are looked at as well.
    if any("XLAEigen" in name for name in thread_names()):
        return True
    function_class = getattr(sys.modules.get(_FUNCTION), "Function", None)
    if function_class is None:
        return False
    return any(
        isinstance(candidate, function_class)
        and getattr(candidate, "_jit_compile", None)
        and candidate._list_all_concrete_functions()
        for candidate in gc.get_objects()
    )


def convolution_executed() -> bool:
    """Whether cuDNN's convolution library was loaded, which the first convolution on a GPU does."""
    return any(name.startswith(("libcudnn_cnn", "libcudnn_engines")) for name in loaded_libraries())


def horovod_started() -> bool:
    """Whether ``hvd.init()`` was called in this process."""
    is_initialized = getattr(sys.modules.get("horovod.tensorflow"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def _see_imported(model: Any) -> Optional[str]:
    return "'tensorflow' is in sys.modules" if tensorflow_imported() else None


def _see_listed(model: Any) -> Optional[str]:
    if devices_listed():
        return "TensorFlow holds a list of physical devices"
    if tensorflow_imported() and cuda_driver_open():
        return "this process holds /dev/nvidia* open"
    return None


def _see_initialized(model: Any) -> Optional[str]:
    return "TensorFlow's eager context reports itself initialised" if context_initialized() else None


def _see_strategy(model: Any) -> Optional[str]:
    distribute = getattr(sys.modules.get("tensorflow"), "distribute", None)
    if distribute is not None and distribute.has_strategy():
        return f"{type(distribute.get_strategy()).__name__} is the strategy in force"
    return None


def _see_built(model: Any) -> Optional[str]:
    if model is not None and getattr(model, "built", False):
        return f"model '{model.name}' is built"
    return None


def _bridge(model: Any) -> Any:
    from tfvolta.bridge import bridge_for

    return bridge_for(model)


def _see_compiled(model: Any) -> Optional[str]:
    if model is not None and _bridge(model).is_compiled(model):
        return f"model '{model.name}' is compiled"
    return None


def _see_traced(model: Any) -> Optional[str]:
    if model is not None and _bridge(model).is_traced(model):
        return f"model '{model.name}' has a traced train function"
    return None


def _see_xla(model: Any) -> Optional[str]:
    return "XLA has compiled a function in this process" if xla_compiled() else None


def _see_kernel(model: Any) -> Optional[str]:
    if convolution_executed():
        return "cuDNN's convolution library is loaded"
    return None


def _see_collective(model: Any) -> Optional[str]:
    return _see_traced(model)


def _see_horovod(model: Any) -> Optional[str]:
    return "hvd.init() was called" if horovod_started() else None


_SEEN: dict[Moment, Callable[[Any], Optional[str]]] = {
    Moment.TENSORFLOW_IMPORTED: _see_imported,
    Moment.DEVICES_LISTED: _see_listed,
    Moment.CONTEXT_INITIALIZED: _see_initialized,
    Moment.STRATEGY_CREATED: _see_strategy,
    Moment.MODEL_BUILT: _see_built,
    Moment.MODEL_COMPILED: _see_compiled,
    Moment.TRAIN_STEP_TRACED: _see_traced,
    Moment.XLA_COMPILED: _see_xla,
    Moment.KERNEL_EXECUTED: _see_kernel,
    Moment.COLLECTIVE_EXECUTED: _see_collective,
    Moment.HOROVOD_STARTED: _see_horovod,
}


def closed(moment: Moment, model: Any = None) -> Optional[Closure]:
    """What closed a moment in this process, or None while it is open.

    Args:
        moment: FIT_STARTED is known only to the session and never closed here; NEVER is never closed.
        model: The model that model-related moments are asked about.
    """
    look = _SEEN.get(moment)
    seen = look(model) if look is not None else None
    return Closure(moment, seen) if seen is not None else None
