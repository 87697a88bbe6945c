"""What a model's traced train function contains, for every Keras: operations, dtypes, XLA and collectives.

Keras keeps the ``tf.function`` objects of its train function in closures, and each traced function holds its nested
functions (XLA clusters, loop bodies, branches) in its graph's library. Both are walked here, each function once.
"""

from __future__ import annotations

import collections
import functools
import re
import types
from typing import Any, Iterable, Iterator, Optional

from tfvolta.bridge.base import GraphSummary

COLLECTIVES = frozenset(
    {
        "CollectiveReduce",
        "CollectiveReduceV2",
        "CollectiveReduceV3",
        "CollectiveGather",
        "CollectiveGatherV2",
        "CollectiveBcastSend",
        "CollectiveBcastSendV2",
        "CollectiveBcastRecv",
        "CollectiveBcastRecvV2",
        "CollectiveReduceScatterV2",
        "CollectiveAllToAllV2",
        "NcclAllReduce",
        "NcclReduce",
        "NcclBroadcast",
        "HorovodAllreduce",
        "HorovodGroupedAllreduce",
        "HorovodAllgather",
        "HorovodBroadcast",
        "HorovodReducescatter",
    }
)
# Operations that Tensor Cores serve: matrix products and convolutions, with their gradients.
PRODUCT_WORDS = ("MatMul", "Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2d", "Einsum", "CudnnRNN")
_MAX_DEPTH = 12  # Keras nests three closures; a script's own wrappers add some


def summarize(model: Any) -> Optional[GraphSummary]:
    """What the traced train functions of a model contain.

    Costs one serialisation of the graph (about 0.1 s for a ResNet-50), so it is for once a fit, not for every batch.

    Returns:
        The summary, or None where nothing was traced: before the first step, or when run eagerly.
    """
    return summarize_function(getattr(model, "train_function", None))


def summarize_function(function: Any) -> Optional[GraphSummary]:
    """What the ``tf.function`` objects inside a callable contain; None where none of them was traced."""
    seen: set[str] = set()
    tally = _Tally()
    traces = 0
    for traced in tf_functions(function):
        for concrete in traced._list_all_concrete_functions():
            name = _name(concrete)
            if name in seen:  # already counted inside an outer function's library
                continue
            seen.add(name)
            traces += 1
            tally.mark(name, concrete.function_def.attr)
            graph = concrete.graph.as_graph_def()
            tally.add(graph.node)
            for nested in graph.library.function:
                if nested.signature.name not in seen:
                    seen.add(nested.signature.name)
                    tally.mark(nested.signature.name, nested.attr)
                    tally.add(nested.node_def)
    return tally.summary(traces) if traces else None


def is_traced(function: Any) -> bool:
    """Whether a callable holds a ``tf.function`` that was traced."""
    return any(traced._list_all_concrete_functions() for traced in tf_functions(function))


def trace_count(function: Any) -> int:
    """How often the ``tf.function`` objects inside a callable were traced so far; cheap, and no device is read."""
    return sum(int(traced.experimental_get_tracing_count()) for traced in tf_functions(function))


def tf_functions(function: Any) -> list[Any]:
    """The ``tf.function`` objects that a callable is or holds in its closures, outermost first."""
    return list(_walk(function, set(), 0))


def outermost(function: Any) -> list[Any]:
    """Those of ``tf_functions`` that no other of them calls: what is traced with the arguments of the callable."""
    found = tf_functions(function)
    inner = {id(called) for each in found for called in tf_functions(getattr(each, "python_function", None))}
    return [each for each in found if id(each) not in inner]


def traced_graphs(model: Any) -> list[Any]:
    """The graphs of a model's traced train functions, so that what was seen while tracing finds its model."""
    functions = tf_functions(getattr(model, "train_function", None))
    return [concrete.graph for traced in functions for concrete in traced._list_all_concrete_functions()]


def _walk(item: Any, seen: set[int], depth: int) -> Iterator[Any]:
    """Depth first, so that an outer function comes before those that it calls."""
    if item is None or id(item) in seen or depth > _MAX_DEPTH:
        return
    seen.add(id(item))
    if hasattr(item, "_list_all_concrete_functions"):
        yield item
        yield from _walk(getattr(item, "python_function", None), seen, depth + 1)
        return
    for held in _held(item):
        yield from _walk(held, seen, depth + 1)


def _held(item: Any) -> Iterator[Any]:
    """Callables that a callable refers to."""
    if isinstance(item, types.MethodType):
        yield item.__func__
    if isinstance(item, functools.partial):
        yield item.func
        yield from (argument for argument in item.args if callable(argument))
    wrapped = getattr(item, "__wrapped__", None)
    if wrapped is not None:
        yield wrapped
    yield from getattr(item, "held_functions", ())
    for cell in getattr(item, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # a cell that is not filled yet
            continue
        if callable(content):
            yield content


class _Tally:
    """Counts of one or more graphs."""

    def __init__(self) -> None:
        self.operations: collections.Counter[str] = collections.Counter()
        self.collectives: collections.Counter[str] = collections.Counter()
        self.hints: collections.Counter[str] = collections.Counter()
        self.products: dict[str, list[str]] = {}
        self.functions = 0
        self._compiled: set[str] = set()
        self._calls: set[tuple[str, str]] = set()
        self._timeouts: set[float] = set()
        self._dtypes: dict[int, str] = {}

    def mark(self, name: str, attributes: Any) -> None:
        """Notes a function that XLA has to compile."""
        if "_XlaMustCompile" in attributes and attributes["_XlaMustCompile"].b:
            self._compiled.add(name)

    def add(self, nodes: Iterable[Any]) -> None:
        """Counts the nodes of one function."""
        self.functions += 1
        for node in nodes:
            dtype = node.attr["T"].type if "T" in node.attr else 0
            kind = f"{node.op}:time_major" if "time_major" in node.attr and node.attr["time_major"].b else node.op
            self.operations[f"{kind}[{self._dtype(dtype)}]" if dtype else kind] += 1
            if dtype and any(word in node.op for word in PRODUCT_WORDS):
                self.products.setdefault(self._dtype(dtype), []).append(node.name)
            if "f" in node.attr:
                self._calls.add((node.attr["f"].func.name, node.device.rsplit("device:", 1)[-1]))
            if node.op in COLLECTIVES:
                self.collectives[node.op] += 1
                hint = node.attr["communication_hint"].s.decode() if "communication_hint" in node.attr else "none"
                self.hints[f"{node.op}[{hint}]"] += 1
                if "timeout_seconds" in node.attr:
                    self._timeouts.add(float(node.attr["timeout_seconds"].f))

    def summary(self, traces: int) -> GraphSummary:
        """The counts as the bridge hands them out."""
        return GraphSummary(
            operations=dict(self.operations),
            functions=self.functions,
            must_compile=bool(self._compiled),
            collectives=dict(self.collectives),
            hints=dict(self.hints),
            products={dtype: tuple(names) for dtype, names in self.products.items()},
            traces=traces,
            compiled_on=tuple(sorted({device for name, device in self._calls if name in self._compiled})),
            timeouts=tuple(sorted(self._timeouts)),
            compiled_functions=tuple(sorted({_as_written(name) for name in self._compiled})),
        )

    def _dtype(self, number: int) -> str:
        """Name of a dtype by its number in a graph; ``half`` is called float16, as everywhere in Keras."""
        if number not in self._dtypes:
            import tensorflow as tf

            self._dtypes[number] = str(tf.dtypes.as_dtype(number).name)
        return self._dtypes[number]


def _as_written(name: str) -> str:
    """The name of a traced function without what TensorFlow puts around it, as in ``__inference_step_12``."""
    return re.sub(r"^(__inference|__forward|__backward)_|_\d+$", "", name)


def _name(concrete: Any) -> str:
    name = concrete.name
    return name.decode() if isinstance(name, bytes) else str(name)
