"""Keras 3: layers of a model that run a faster kernel, put on the instances and taken off again.

The layer stays the user's own object of its own class: its variables, config and saved form are Keras's. What is
replaced is one method on the instance, which looks at each trace whether the kernel serves this call and otherwise
runs Keras's own.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Callable, Mapping, Optional

from tfvolta.bridge import keras3_cudnn_rnn, keras3_functions, keras3_fused_norm, keras3_layers
from tfvolta.bridge.keras3_patch import KEY, Patch, patch_of
from tfvolta.bridge.kernel_records import BATCH_NORM, RECURRENT, KernelChange
from tfvolta.bridge.records import RefusedLayer


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        method: The method of a layer that it replaces.
        function: What replaces it.
        concerns: Whether a layer is of the kind at all.
        reason: Why a layer of the kind stays as it is; empty where it is served.
    """

    method: str
    function: Callable[..., Any]
    concerns: Callable[[Any], bool]
    reason: Callable[[Any], str]


_KERNELS: Mapping[str, Kernel] = {
    BATCH_NORM: Kernel("call", keras3_fused_norm.call, keras3_fused_norm.concerns, keras3_fused_norm.reason),
    RECURRENT: Kernel("inner_loop", keras3_cudnn_rnn.inner_loop, keras3_cudnn_rnn.concerns, keras3_cudnn_rnn.reason),
}


class KernelPart:
    """See ``tfvolta.bridge.base.Bridge``."""

    def install_kernel(self, model: Any, kind: str, always: bool = False) -> KernelChange:
        """Lets the layers of a kind use a faster kernel from their next trace on."""
        kernel = _KERNELS[kind]
        served, left, fresh = [], [], []
        for path, layer in keras3_layers.named_layers(model):
            if not kernel.concerns(layer):
                continue
            patch = patch_of(layer, kind)
            why = "" if patch else _taken(layer, kernel) or kernel.reason(layer)
            if why:
                left.append(RefusedLayer(path, type(layer).__name__, why))
                continue
            served.append(path)
            if patch is None:
                _put(layer, kind, kernel, Patch(always))
            if patch is None or patch.always is not always:
                layer.__dict__[KEY][kind].always = always
                fresh.append(layer)
        if fresh:
            keras3_functions.reset(model)
        return KernelChange(kind, tuple(served), tuple(left), undo_token=tuple(fresh))

    def undo_kernel(self, model: Any, change: KernelChange) -> None:
        """Lets Keras run the layers that a change had put on a kernel."""
        kernel = _KERNELS[change.kind]
        for layer in change.undo_token or ():
            patches = layer.__dict__.get(KEY, {})
            if patches.pop(change.kind, None) is not None:
                layer.__dict__.pop(kernel.method, None)
            if not patches:
                layer.__dict__.pop(KEY, None)
        if change.undo_token:
            keras3_functions.reset(model)

    def kernel_fallbacks(self, model: Any, kind: str) -> Mapping[str, str]:
        """Why layers that have a kernel ran Keras's own code in a trace, by path."""
        found = {}
        for path, layer in keras3_layers.named_layers(model):
            patch = patch_of(layer, kind)
            if patch is not None and patch.fallbacks:
                found[path] = "; ".join(sorted(patch.fallbacks))
        return found


def _put(layer: Any, kind: str, kernel: Kernel, patch: Patch) -> None:
    layer.__dict__.setdefault(KEY, {})[kind] = patch
    layer.__dict__[kernel.method] = types.MethodType(kernel.function, layer)


def _taken(layer: Any, kernel: Kernel) -> Optional[str]:
    """Why the method cannot be replaced: somebody else has done so on this instance."""
    if kernel.method in layer.__dict__:
        return f"{kernel.method} is replaced on this layer already, by something other than tfvolta"
    return None
