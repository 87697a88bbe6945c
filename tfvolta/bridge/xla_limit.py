"""How long XLA takes to compile a train step, found out in a process of its own, which ends at a limit.

A compilation cannot be interrupted inside a process. So the marked function of the traced step is handed to another
one, with the sizes of its arguments and variables; where that takes too long it is ended, and this one goes on.
Source: tensorflow/python/eager/polymorphic_function/atomic_function.py, which calls a function by its name likewise.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any, MutableMapping, Optional

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from tfvolta.bridge import xla_trial
from tfvolta.bridge.records import CompileProbe
from tfvolta.bridge.xla_faults import MarkedFunction

_ROWS = 4  # of a batch, where the data do not say
_START_SECONDS = 120.0  # for TensorFlow to be imported and to begin
_probed: MutableMapping[Any, dict[str, CompileProbe]] = weakref.WeakKeyDictionary()


def probe(model: Any, iterator: Any, rows: Optional[int], limit_seconds: float) -> CompileProbe:
    """Compiles a model's train step for an iterator in another process.

    Args:
        model: A compiled model whose train function exists.
        iterator: What the train function will be called with.
        rows: Rows of a full batch; None where not known.
        limit_seconds: After so long the other process is ended.

    Returns:
        What was found; of a function that was tried before, what was found then.
    """
    if int(model.distribute_strategy.num_replicas_in_sync) > 1:
        return CompileProbe(
            reason="a step of several replicas waits for the others, which another process does not have"
        )
    found = CompileProbe(seconds=0.0)
    known = _probed.setdefault(model, {})
    for name, definitions, function in xla_trial.marked_definitions(model, iterator):
        if name not in known:
            known[name] = _of_function(function, definitions, rows, limit_seconds)
        if known[name].seconds is None:
            return known[name]
        found = CompileProbe(seconds=(found.seconds or 0.0) + (known[name].seconds or 0.0))
    return found


def _of_function(
    function: MarkedFunction, definitions: dict[str, Any], rows: Optional[int], limit_seconds: float
) -> CompileProbe:
    inputs = [*_arguments(function, rows), *map(_captured, function.captured)]
    if None in inputs:
        return CompileProbe(reason="the step takes something that is neither a number nor a variable, such as a table")
    library = function_pb2.FunctionDefLibrary(function=list(definitions.values()))
    call = {
        "name": function.name,
        "inputs": inputs,
        "outputs": len(definitions[function.name].signature.output_arg),
        "device": xla_trial.device_of(function.captured),
    }
    with tempfile.TemporaryDirectory(prefix="tfvolta-") as folder:
        (Path(folder) / "functions.pb").write_bytes(library.SerializeToString())
        (Path(folder) / "call.json").write_text(json.dumps(call), encoding="utf-8")
        return _run(folder, limit_seconds)


def _arguments(function: MarkedFunction, rows: Optional[int]) -> list[Any]:
    specs = [xla_trial.filled(tensor, rows or _ROWS) for tensor in function.arguments]
    return [None if spec is None else _part(spec.shape, spec.dtype, False) for spec in specs]


def _captured(tensor: Any) -> Optional[dict[str, Any]]:
    """What another process has to make in place of a captured tensor."""
    if tensor.dtype != tf.resource:
        return _part(tensor.shape, tensor.dtype, False)
    data = getattr(tensor, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    held = data.shape_and_type[0]
    return _part(tf.TensorShape(held.shape), tf.dtypes.as_dtype(held.dtype), True)


def _part(shape: Any, dtype: Any, variable: bool) -> Optional[dict[str, Any]]:
    if not shape.is_fully_defined() or dtype in (tf.string, tf.variant):
        return None
    return {"shape": shape.as_list(), "dtype": dtype.name, "variable": variable}


def _run(folder: str, limit_seconds: float) -> CompileProbe:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    root = str(Path(__file__).resolve().parents[2])
    environ["PYTHONPATH"] = os.pathsep.join(part for part in (root, environ.get("PYTHONPATH")) if part)
    command = [sys.executable, "-m", "tfvolta.bridge.xla_child", folder]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environ, start_new_session=True) as process,
    ):
        try:
            if not _line(process, b"ready", _START_SECONDS):
                return CompileProbe(reason=f"another process could not begin: {_last(said)}")
            began = time.monotonic()
            if _line(process, b"done", limit_seconds):
                return CompileProbe(seconds=time.monotonic() - began)
            if time.monotonic() - began >= limit_seconds:
                return CompileProbe(exceeded=True)
            return CompileProbe(reason=f"another process could not compile it: {_last(said)}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _line(process: subprocess.Popen[bytes], expected: bytes, seconds: float) -> bool:
    """Whether a process prints a line in time; False as soon as it ends without."""
    assert process.stdout is not None
    until, seen = time.monotonic() + seconds, b""
    while (left := until - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            return False
        read = os.read(process.stdout.fileno(), 4096)
        if not read:
            return False
        seen += read
        if expected in seen:
            return True
    return False


def _last(file: Any) -> str:
    file.seek(0)
    lines = [line.strip() for line in file.read().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"
