"""From a wrong value to the right one, where what was meant can be told; every suggestion is tried on the schema."""

from __future__ import annotations

import difflib
import math
import numbers
import re
from typing import Any, Iterator, Optional

from tfvolta.config.catalogue import Setting, alternatives
from tfvolta.config.scalars import read_scalar
from tfvolta.config.units import converted, rounded

_WORDS = {"yes": True, "on": True, "y": True, "enabled": True, "no": False, "off": False, "n": False, "disabled": False}
# What other frameworks, environment variables and papers call these values.
_SPELLINGS = {
    **dict.fromkeys(("float16", "fp16", "half", "amp", "mixed", "16", "mixed_precision", "f16"), "mixed_float16"),
    **dict.fromkeys(("bfloat16", "bf16", "mixed_bf16"), "mixed_bfloat16"),
    **dict.fromkeys(("fp32", "single", "32", "none", "float", "f32"), "float32"),
    **dict.fromkeys(("jit_compile", "xla", "compile"), "model"),
    **dict.fromkeys(("autoclustering", "auto_clustering", "auto_jit", "1", "2"), "clustering"),
    **dict.fromkeys(("never", "0"), "off"),
    **dict.fromkeys(("mwms", "multi_worker", "collective_all_reduce"), "multi_worker_mirrored"),
    **dict.fromkeys(("ps",), "parameter_server"),
    **dict.fromkeys(("hvd",), "horovod"),
    **dict.fromkeys(("ddp", "data_parallel", "multi_gpu"), "mirrored"),
    **dict.fromkeys(("single_device", "single_gpu"), "one_device"),
    **dict.fromkeys(("private",), "gpu_private"),
    **dict.fromkeys(("shared",), "gpu_shared"),
    **dict.fromkeys(("cudamallocasync", "async"), "cuda_malloc_async"),
    **dict.fromkeys(("bfc",), "default"),
    **dict.fromkeys(("nccl_all_reduce",), "nccl"),
}
_SWITCHES = {True: ("mixed_float16", "auto", "INFO"), False: ("off", "float32", "default", "WARN")}


def better_value(setting: Setting, value: Any) -> Optional[Any]:
    """The accepted value that was probably meant, or None where that cannot be told."""
    candidates = (candidate for candidate in _candidates(setting, value) if candidate is not None)
    return next((candidate for candidate in candidates if setting.accepts(candidate)), None)


def _candidates(setting: Setting, value: Any) -> Iterator[Any]:
    kinds = setting.alternatives
    options = [option for kind in kinds for option in kind.get("enum", [kind["const"]] if "const" in kind else [])]
    yield value
    yield from _scalar_candidates(value, setting.unit, options)
    if any(kind.get("type") == "string" for kind in kinds) and isinstance(value, (bool, int, float)):
        yield str(value).lower() if isinstance(value, bool) else str(value)
    array = next((kind for kind in kinds if kind.get("type") == "array"), None)
    if array is not None:
        yield from _list_candidates(value, array.get("items", {}), setting)
    elif isinstance(value, list) and len(value) == 1:
        yield from _scalar_candidates(value[0], setting.unit, options)


def _scalar_candidates(value: Any, unit: str, options: list[str]) -> Iterator[Any]:
    yield value
    if isinstance(value, str):
        text = value.strip()
        yield from (text, read_scalar(text), read_scalar(text.replace("_", "").replace(",", "")))
        yield _WORDS.get(text.lower())
        yield converted(text, unit)
        yield from _option_candidates(text, options)
        yield from _switches(_WORDS.get(text.lower(), read_scalar(text)), options)
    elif isinstance(value, bool):
        yield from _switches(value, options)
    elif isinstance(value, (int, float, numbers.Real)) and math.isfinite(value):
        yield bool(value) if value in (0, 1) else None
        yield rounded(float(value), unit)
        yield from _option_candidates(str(value), options)


def _switches(value: Any, options: list[str]) -> Iterator[str]:
    if isinstance(value, bool):
        yield from (option for option in _SWITCHES[value] if option in options)


def _option_candidates(text: str, options: list[str]) -> Iterator[str]:
    """Options that differ in case, in style (``MirroredStrategy``), by another framework's name, or by a slip."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower().replace("-", "_").replace(" ", "_").strip("_")
    snake = re.sub(r"_?strategy$", "", snake) or snake
    lowered = {option.lower().replace("_", ""): option for option in options}
    for word in (snake, text.lower()):
        if word.replace("_", "") in lowered:
            yield lowered[word.replace("_", "")]
        if _SPELLINGS.get(word) in options:
            yield _SPELLINGS[word]
    for match in difflib.get_close_matches(snake, [option.lower() for option in options], n=1, cutoff=0.6):
        yield next(option for option in options if option.lower() == match)


def _list_candidates(value: Any, item: dict[str, Any], setting: Setting) -> Iterator[Any]:
    if isinstance(value, str):
        text = value.strip().strip("[]()")
        parts = re.split(r"\s+(?=--)|\s*[,;]\s*" if "--" in text else r"[\s,;]+", text)
        if not re.search(r"[,;]|\s--", text):
            yield [value]
        yield from _list_candidates([part for part in parts if part], item, setting)
        if text in ("-1", ""):
            yield []
    elif isinstance(value, list):
        yield [_item(part, item, setting) for part in value]
    elif isinstance(value, bool):
        return
    elif value is not None:
        yield [value]
        yield [] if value == -1 else [_item(value, item, setting)]


def _item(value: Any, item: dict[str, Any], setting: Setting) -> Any:
    types = {kind.get("type") for kind in alternatives(item)}
    if "integer" in types and isinstance(value, str):
        match = re.fullmatch(r"(?:/?(?:device:)?GPU:)?([0-9]{1,6})", value.strip(), re.IGNORECASE)
        return int(match[1]) if match else value
    if "integer" in types and isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    if "string" in types and isinstance(value, int) and not isinstance(value, bool):
        return f"GPU:{value}" if setting.name == "devices" else str(value)
    if "string" in types and isinstance(value, str) and setting.name == "flags":
        return f"--{value.lstrip('-')}"
    return value
