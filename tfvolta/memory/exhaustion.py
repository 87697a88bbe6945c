"""What TensorFlow's words say about memory that ran out: where, how much was asked for, and what held the rest.

Texts that are read here:

- ``OOM when allocating tensor with shape[64,128] and type float on /job:.../device:GPU:0 by allocator GPU_0_bfc``
- ``Current usage from device: ..., allocator: GPU_0_bfc`` with lines ``12.00MiB from conv1/Conv2D``, where TensorFlow
  was asked to list what is allocated
- XLA's ``Out of memory while trying to allocate 123 bytes`` with its ``Peak buffers``
- ``failed to allocate 1.5GiB (1610612736 bytes) from device`` of a GPU that another process has filled
- errors of other kinds that mean the same: ``Dst tensor is not initialized``, ``CUDNN_STATUS_ALLOC_FAILED``,
  ``CUDA_ERROR_OUT_OF_MEMORY``

Source: tensorflow/core/framework/allocator.cc and op_kernel.cc, core/common_runtime/step_stats_collector.cc,
xla/service/buffer_assignment.cc of TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Optional

_SHAPED = re.compile(
    r"OOM when allocating (?:a )?tensor with shape\s*\[([\d,]*)\](?: and type (\w+))?"
    r"(?: on (\S+))?(?: by allocator ([\w\-]+))?",
)
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_BYTES = re.compile(r"(?:to allocate|allocating)[^.\n]*?([\d.]+)\s*([KMGT]i?B|bytes?)", re.I)
_EXACT = re.compile(r"\((\d+)\s*bytes?\)|allocat\w+ (\d+) bytes")
_DEVICE = re.compile(r"device:(GPU|CPU):(\d+)|allocator (GPU)_(\d+)_bfc")
_HELD = re.compile(r"^\s*([\d.]+)\s*([KMGT]?i?B) from (\S+)\s*$", re.M)
_BUFFER = re.compile(r"Buffer \d+:\s*\n\s*Size:\s*([\d.]+)\s*([KMGT]?i?B)(.*?)(?=\n\s*Buffer \d+:|\Z)", re.S)
_BUFFER_SHAPE = re.compile(r"Shape:\s*(\S+)")
_BUFFER_NAME = re.compile(r"op_name=\"([^\"]+)\"|XLA Label:\s*(\S+)")
_UNITS = {"b": 1, "byte": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS.update(kib=2**10, mib=2**20, gib=2**30, tib=2**40)
_TYPE_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "complex64": 8, "complex128": 16, "bool": 1}
_TYPE_BYTES.update(int8=1, uint8=1, int16=2, uint16=2, int32=4, uint32=4, int64=8, uint64=8)

# What says that memory ran out, whatever the class of the error.
_SIGNS = (
    "oom when allocating",
    "out of memory",
    "cuda_error_out_of_memory",
    "cudnn_status_alloc_failed",
    "cublas_status_alloc_failed",
    "failed to allocate",
    "unable to allocate",
    "could not allocate",
    "dst tensor is not initialized",
    "memoryerror",
    "bad_alloc",
    "failed to allocate memory",
    "cannot allocate memory",
)
# Other things that are used up, by the same class of error.
_NOT_MEMORY = ("larger than max", "no space left", "too many open files", "disk quota")


@dataclasses.dataclass(frozen=True)
class Held:
    """Memory that something holds.

    Attributes:
        name: An operation, a buffer or a variable.
        size_bytes: Its size.
        shape: Such as ``f32[64,128]``; empty where the text has none.
    """

    name: str
    size_bytes: int
    shape: str = ""


@dataclasses.dataclass(frozen=True)
class Exhaustion:
    """What the text of an error says.

    Attributes:
        first_line: The first sentence of the text.
        asked_bytes: Size of the allocation that failed; None where the text does not say.
        shape: Shape of the tensor that could not be made; None likewise.
        dtype: Its type in TensorFlow's word, such as ``float``.
        device: ``GPU:0`` or ``CPU:0``; empty where the text does not say.
        allocator: TensorFlow's name for the allocator.
        operation: The operation that failed, with its scopes; empty likewise.
        held: What else was allocated, largest first, where the text lists it.
        host: Whether the host's memory ran out, and not a GPU's.
    """

    first_line: str
    asked_bytes: Optional[int] = None
    shape: Optional[tuple[int, ...]] = None
    dtype: str = ""
    device: str = ""
    allocator: str = ""
    operation: str = ""
    held: tuple[Held, ...] = ()
    host: bool = False


def is_exhaustion(kind: str, text: str) -> bool:
    """Whether an error means that memory ran out.

    Args:
        kind: Name of the error's class.
        text: What it says.
    """
    lower = text.lower()
    if any(part in lower for part in _NOT_MEMORY):
        return False
    return kind == "MemoryError" or any(sign in lower for sign in _SIGNS)


def read(kind: str, text: str) -> Exhaustion:
    """What the text of such an error says."""
    shaped = _SHAPED.search(text)
    shape = tuple(int(size) for size in shaped[1].split(",") if size) if shaped else None
    dtype = (shaped[2] or "") if shaped else ""
    device = _device(text)
    asked = _asked(text)
    if asked is None and shape is not None and dtype in _TYPE_BYTES:
        asked = math.prod(shape) * _TYPE_BYTES[dtype]
    return Exhaustion(
        first_line=_first_line(text) or kind,
        asked_bytes=asked,
        shape=shape,
        dtype=dtype,
        device=device,
        allocator=(shaped[4] or "") if shaped else "",
        operation=_operation(text),
        held=_held(text),
        host=device.startswith("CPU") or kind == "MemoryError" or "MemoryError" in text,
    )


def size_text(size_bytes: Optional[int]) -> str:
    """A size for a reader, such as ``1.5 GiB``; ``unknown`` for None."""
    if size_bytes is None:
        return "unknown"
    size, unit = float(size_bytes), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if any(sign in line.lower() for sign in _SIGNS)]
    return (said or lines or [""])[0]


def _asked(text: str) -> Optional[int]:
    exact = _EXACT.search(text)
    if exact:
        return int(exact[1] or exact[2])
    found = _BYTES.search(text)
    return _bytes(found[1], found[2]) if found else None


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit.lower()])


def _device(text: str) -> str:
    found = _DEVICE.search(text)
    if found is None:
        return "GPU:0" if re.search(r"cuda|cudnn|cublas", text, re.I) else ""
    return f"{found[1] or found[3]}:{found[2] or found[4]}"


def _operation(text: str) -> str:
    found = _NODE.search(text)
    return "" if found is None else found[1].strip()


def _held(text: str) -> tuple[Held, ...]:
    listed = [Held(name, _bytes(number, unit)) for number, unit, name in _HELD.findall(text)]
    for number, unit, rest in _BUFFER.findall(text):
        name: Any = _BUFFER_NAME.search(rest)
        shape = _BUFFER_SHAPE.search(rest)
        listed.append(
            Held((name[1] or name[2]) if name else "a buffer", _bytes(number, unit), shape[1] if shape else "")
        )
    return tuple(sorted(listed, key=lambda each: -each.size_bytes))
