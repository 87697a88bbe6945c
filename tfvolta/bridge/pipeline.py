"""What a ``tf.data`` pipeline is made of, read from the chain of its transformations; nothing is iterated.

Source: the classes in tensorflow/python/data/ops, the same in TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional

import tensorflow as tf

from tfvolta.bridge import data_order, datasets

_PASSES = frozenset({"_OptionsDataset", "_AssertCardinalityDataset", "_ModelDataset"})
_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})
_TO_DEVICE = frozenset({"_CopyToDeviceDataset"})
_AHEAD = frozenset({"_PrefetchDataset", "_ParallelMapDataset", "_ParallelBatchDataset"})


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """What a pipeline holds.

    Attributes:
        serial_maps: Functions that are applied to one element after another.
        parallel_maps: Functions that are applied to several elements at once.
        python_maps: Of both, those that call Python for each element.
        prefetched: Whether elements are fetched ahead of whoever asks: by the last transformation, or by TensorFlow.
        on_device: Whether something copies elements to another device.
        cached: Whether something keeps its elements after the first pass.
        generator: Whether elements come out of a Python generator.
        draws: Whether a function draws at random, or may: Python code is not looked into.
        random: The same, shuffling included.
    """

    serial_maps: int
    parallel_maps: int
    python_maps: int
    prefetched: bool
    on_device: bool
    cached: bool
    generator: bool
    draws: bool
    random: bool


def describe(dataset: Any) -> Pipeline:
    """What a data set is made of."""
    chain = datasets.chain(dataset)
    names = [type(each).__name__ for each in chain]
    called = [_operations(each) for each in chain]
    python = [bool(_PYTHON & operations) for operations in called]
    return Pipeline(
        serial_maps=names.count("_MapDataset"),
        parallel_maps=names.count("_ParallelMapDataset"),
        python_maps=sum(calls for name, calls in zip(names, python) if name in ("_MapDataset", "_ParallelMapDataset")),
        prefetched=tail(dataset) in _AHEAD or injects_prefetch(dataset),
        on_device=not _TO_DEVICE.isdisjoint(names),
        cached="CacheDataset" in names,
        generator=any("GeneratorDataset" in operations for operations in called),
        draws=any(python)
        or any(name.startswith(("Random", "Stateless")) for operations in called for name in operations),
        random=any(python) or data_order.of_dataset(dataset) != data_order.FIXED,
    )


def injects_prefetch(dataset: Any) -> bool:
    """Whether TensorFlow puts a prefetch behind a pipeline that does not end with something of the kind.

    Source: tensorflow/core/grappler/optimizers/data/inject_prefetch.cc; on by default in TensorFlow 2.15 and 2.21.
    """
    options = dataset.options()
    rewrites = options.experimental_optimization
    switches = (options.autotune.enabled, rewrites.inject_prefetch, rewrites.apply_default_optimizations)
    return tail(dataset) not in _AHEAD and all(switch is not False for switch in switches)


def tail(dataset: Any) -> str:
    """Class of the last transformation that does something to the elements."""
    return type(_last(dataset)).__name__


def copy_to_device(dataset: Any) -> Optional[tuple[Any, Callable[[Any], Any]]]:
    """What a data set that ends with a copy to a device is made from, and the way to that device; None for others."""
    last, ahead = _last(dataset), None
    if type(last).__name__ == "_PrefetchDataset":
        last, ahead = _last(last._input_dataset), prefetch_buffer(dataset)
    if type(last).__name__ not in _TO_DEVICE:
        return None
    device, source = last._target_device, last._source_device_string

    def finish(host: Any) -> Any:
        copied = host.apply(tf.data.experimental.copy_to_device(device, source))
        return copied if ahead is None else copied.prefetch(ahead)

    return last._input_dataset, finish


def prefetch_buffer(dataset: Any) -> Optional[int]:
    """Elements that the last transformation fetches ahead, -1 for a number that is chosen; None without one."""
    last = _last(dataset)
    if type(last).__name__ != "_PrefetchDataset":
        return None
    size = tf.get_static_value(last._buffer_size)
    return None if size is None else int(size)


def device(dataset: Any) -> str:
    """The device to which elements are copied; empty for none."""
    copies = [each for each in datasets.chain(dataset) if type(each).__name__ in _TO_DEVICE]
    return str(copies[0]._target_device) if copies else ""


def cache_place(dataset: Any) -> str:
    """``memory``, the file in which elements are kept, or empty."""
    caches = [each for each in datasets.chain(dataset) if type(each).__name__ == "CacheDataset"]
    if not caches:
        return ""
    name = tf.get_static_value(caches[0]._filename)
    return (name or b"").decode() or "memory"


def _last(dataset: Any) -> Any:
    while type(dataset).__name__ in _PASSES:
        dataset = dataset._input_dataset
    return dataset


def _operations(dataset: Any) -> set[str]:
    """Types of the operations that a transformation calls for each element, those of nested functions included."""
    function = getattr(getattr(dataset, "_map_func", None), "function", None)
    graph = getattr(function, "graph", None)
    if graph is None:
        return set()
    definition = graph.as_graph_def()
    nested = (node.op for function in definition.library.function for node in function.node_def)
    return {*(node.op for node in definition.node), *nested}
