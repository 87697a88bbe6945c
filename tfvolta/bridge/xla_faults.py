"""From XLA's refusal of a function to the operations that it refuses and the layers that own them."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from typing import Any, Iterator, Optional

from tensorflow.python.framework import kernels

from tfvolta.bridge.base import XlaFault

# What XLA's translator says of an operation whatever the sizes are.
_CONCLUSIVE = (
    "Detected unsupported operations",
    "must be a compile-time constant",
    "DataTypeToPrimitiveType",
)
_REFUSED = re.compile(r"(\w+) \(No registered '\w+' OpKernel for \w+ devices compatible with node \{\{node ([^}]+)\}\}")
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_COUNTED = re.compile(r"_\d+$")
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "tfvolta")
# Graph-only forms of a function's arguments; the translator never meets them.
_NOT_RUN = frozenset({"Placeholder"})


@dataclasses.dataclass(frozen=True)
class MarkedFunction:
    """A traced function that XLA shall compile.

    Attributes:
        name: Its name in TensorFlow's function library.
        graph: Its graph.
        library: Graphs of every function by name.
    """

    name: str
    graph: Any
    library: dict[str, Any]

    @property
    def captured(self) -> list[Any]:
        """What it takes from outside beside its arguments: handles of variables, mostly."""
        return [outside for outside, _ in self.graph.captures]

    @property
    def arguments(self) -> list[Any]:
        """Placeholders of its arguments, flat."""
        return list(self.graph.inputs[: len(self.graph.inputs) - len(self.captured)])

    def operations(self) -> Iterator[Any]:
        """Operations of it and of the functions that it calls, loops and branches included."""
        for name in (self.name, *self.calls()):
            yield from (self.graph if name == self.name else self.library[name]).get_operations()

    def calls(self) -> list[str]:
        """Names of the functions that it calls, directly or not; itself left out."""
        waiting, found = [self.graph], [self.name]
        while waiting:
            for operation in waiting.pop().get_operations():
                for name in _called(operation):
                    if name in self.library and name not in found:
                        found.append(name)
                        waiting.append(self.library[name])
        return found[1:]


def _called(operation: Any) -> list[str]:
    attributes = operation.node_def.attr.values()
    return [a.func.name for a in attributes if a.func.name] + [f.name for a in attributes for f in a.list.func]


def is_conclusive(text: str, exact: bool) -> bool:
    """Whether XLA's refusal holds for the step itself, and not only for this way of trying it.

    What the translator says names an operation; anything else comes from the trial's surroundings, such as a table or a
    variable without a value.

    Args:
        text: What XLA said.
        exact: Whether the function was lowered for the sizes that training uses.
    """
    if any(part in text for part in _CONCLUSIVE):
        return True
    return exact and _NODE.search(text) is not None


def named(text: str, function: MarkedFunction, layers: list[tuple[str, Any]]) -> tuple[XlaFault, ...]:
    """The operations that a refusal names."""
    by_name = {operation.name: operation for operation in function.operations()}
    nodes = {node: kind for kind, node in _REFUSED.findall(text)}
    if not nodes:
        found = _NODE.search(text)
        nodes = {found[1]: by_name[found[1]].type} if found and found[1] in by_name else {}
    faults = []
    for node, kind in nodes.items():
        faults.append(_fault(kind, node, by_name.get(node), layers, _sentence(text)))
    return tuple(faults)


def unnamed(text: str) -> XlaFault:
    """A refusal that names no operation."""
    return XlaFault("", reason=_sentence(text))


def without_kernel(function: MarkedFunction, layers: list[tuple[str, Any]], platform: str) -> tuple[XlaFault, ...]:
    """The operations for which XLA has no kernel at all, by TensorFlow's own register.

    XLA's kernels have been registered by the first attempt to lower anything in the process.
    """
    found: dict[tuple[str, str], XlaFault] = {}
    for operation in function.operations():
        if operation.type not in _NOT_RUN and not _has_kernel(operation.type, platform):
            fault = _fault(operation.type, operation.name, operation, layers, f"no kernel for {platform}")
            found.setdefault((fault.operation, fault.layer), fault)
    return tuple(found.values())


@functools.cache
def _has_kernel(operation: str, platform: str) -> bool:
    registered = kernels.get_registered_kernels_for_op(operation).kernel
    return any(kernel.device_type == platform for kernel in registered)


def _fault(kind: str, node: str, operation: Optional[Any], layers: list[tuple[str, Any]], reason: str) -> XlaFault:
    path, layer = _owner(node, layers)
    if kind == "_Arg":
        kind, reason = "string input", "the data hold strings, which have no XLA type"
    return XlaFault(
        kind, path, type(layer).__name__ if layer is not None else "", _place(operation) if operation else "", reason
    )


def _owner(node: str, layers: list[tuple[str, Any]]) -> tuple[str, Optional[Any]]:
    """The innermost layer in whose name scope a node was made; scopes count a layer's calls with a suffix."""
    scopes = node.split("/")[:-1]
    for scope in reversed(scopes):
        for candidate in dict.fromkeys((scope, _COUNTED.sub("", scope))):
            matching = [(path, layer) for path, layer in layers if layer.name == candidate]
            if matching:
                return matching[0]
    return "", None


def _place(operation: Any) -> str:
    """The innermost line of code outside the libraries that made an operation."""
    for frame in reversed(list(getattr(operation, "traceback", None) or ())):
        parts = frame.filename.split(os.sep)
        if not any(f"site-packages{os.sep}{name}{os.sep}" in frame.filename for name in _LIBRARIES) and not (
            "tfvolta" in parts or frame.filename.startswith("<")
        ):
            return f"{parts[-1]}:{frame.lineno}"
    return ""


def _sentence(text: str) -> str:
    """The first line of what XLA said, without its quotation and the trace."""
    line = text.replace("Failed getting HLO text: '", "", 1).strip().splitlines()[0]
    return line if len(line) <= 240 else line[:237] + "..."
