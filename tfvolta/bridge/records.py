"""What the bridges hand out and take: plain values, the same for every Keras."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional

from tfvolta.bridge.scale_bounds import KERAS_BOUNDS, ScaleBounds


@dataclasses.dataclass(frozen=True)
class LossScaleSettings:
    """Loss scaling as the config asks for it; ``fixed`` wins over everything that concerns a dynamic scale."""

    initial: float = 32768.0
    growth_steps: int = 2000
    fixed: Optional[float] = None
    bounds: ScaleBounds = KERAS_BOUNDS


@dataclasses.dataclass(frozen=True)
class LossScaleState:
    """Loss scale of an optimiser at one moment.

    Attributes:
        scale: Current scale; the initial one before the optimiser is built.
        dynamic: Whether it changes with overflows.
        good_steps: Finite steps since the last change; None for a fixed scale.
        bounds: What a dynamic scale keeps to; None where the optimiser was never given any.
        overflows: Overflows tolerated since the scale last grew; None where nothing counts them.
    """

    scale: float
    dynamic: bool
    good_steps: Optional[int] = None
    bounds: Optional[ScaleBounds] = dataclasses.field(default=None, compare=False)
    overflows: Optional[int] = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class SkippedRow:
    """Steps skipped in a row: now, and the most since the last look."""

    now: int
    longest: int


@dataclasses.dataclass(frozen=True)
class RefusedLayer:
    """A layer left in its precision, with the technical reason."""

    name: str
    class_name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Retrofit:
    """What a retrofit changed.

    Attributes:
        policy: The policy that was set.
        converted: Names of layers that now compute in it (paths for nested layers).
        islands: Names of layers kept in float32 on purpose.
        refused: Layers that could not be converted.
        undo_token: For ``undo_retrofit``.
    """

    policy: str
    converted: tuple[str, ...]
    islands: tuple[str, ...]
    refused: tuple[RefusedLayer, ...]
    undo_token: Any = dataclasses.field(default=None, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class GraphSummary:
    """What the traced train functions contain, nested functions included.

    Attributes:
        operations: ``{"MatMul[float16]": 9, ...}``: operation type and its T attribute, ``Softmax`` alone where it has
            none; ``CudnnRNNV3:time_major[float16]`` is one that takes sequences time first.
        functions: Number of concrete functions looked at.
        must_compile: Whether a function carries ``_XlaMustCompile``.
        collectives: Collective operations by type, such as ``{"CollectiveReduceV2": 4}``.
        hints: The same by type and ``communication_hint``, such as ``{"CollectiveReduceV2[nccl]": 4}``.
        products: Names of the matrix products and convolutions by dtype; a name holds the scopes of its layers.
        traces: Outermost traces that the counts are summed over; a count divided by it is that of one step.
        compiled_on: Devices on which functions with ``_XlaMustCompile`` are called, such as ``GPU:0``, each once; empty
            text for a call that names none.
        timeouts: Limits of the collectives in seconds, each once; 0 is none.
        compiled_functions: Names of the functions with ``_XlaMustCompile``, as they were written, each once.
    """

    operations: Mapping[str, int]
    functions: int
    must_compile: bool
    collectives: Mapping[str, int]
    hints: Mapping[str, int] = dataclasses.field(default_factory=dict)
    products: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    traces: int = 1
    compiled_on: tuple[str, ...] = ()
    timeouts: tuple[float, ...] = ()
    compiled_functions: tuple[str, ...] = ()

    def count(self, operation: str, dtype: Optional[str] = None) -> int:
        """Number of operations of a type, in one dtype or in all."""
        if dtype is not None:
            return self.operations.get(f"{operation}[{dtype}]", 0)
        return sum(n for key, n in self.operations.items() if key.split("[")[0] == operation)


@dataclasses.dataclass(frozen=True)
class JitState:
    """What was asked of a model's ``jit_compile``, what the train step will get, and why where they differ."""

    requested: Any
    effective: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class XlaFault:
    """One operation of a train step that XLA cannot compile.

    Attributes:
        operation: Its type, such as ``AsString``; empty where XLA names none.
        layer: Path of the layer that owns it; empty for the loss, the metrics and the train step itself.
        class_name: Class of that layer.
        place: File and line that made it, such as ``train.py:12``; empty where not known.
        reason: What XLA says, in one sentence.
    """

    operation: str
    layer: str = ""
    class_name: str = ""
    place: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class XlaTrial:
    """What lowering a traced train step to XLA showed.

    Attributes:
        faults: Why it cannot be compiled; empty where nothing speaks against it.
        seconds: What lowering took on top of the trace, which training uses.
        lowered: Whether the step was lowered; otherwise its operations were looked up among XLA's kernels only.
        compile_seconds: What compiling it took in another process, where a limit asked for that.
    """

    faults: tuple[XlaFault, ...] = ()
    seconds: float = 0.0
    lowered: bool = True
    compile_seconds: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class CompileProbe:
    """How long another process took to compile a train step.

    Attributes:
        seconds: What it took; None where it did not end.
        exceeded: Whether it was ended because it took too long.
        reason: Why nothing could be found out; empty where something was.
    """

    seconds: Optional[float] = None
    exceeded: bool = False
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class FitData:
    """What the running fit knows of its data.

    Attributes:
        kind: ``arrays``, ``dataset`` or the name of another kind.
        batch: Rows of a full batch; None where not known.
        rows: Rows of an epoch; None where not known.
        remainder: Rows of the smaller last batch; 0 where there is none, None where not known.
    """

    kind: str
    batch: Optional[int] = None
    rows: Optional[int] = None
    remainder: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class StepCounts:
    """Optimiser steps, the same meaning on every Keras.

    Attributes:
        applied: Steps that changed the weights.
        skipped: Steps skipped because of non-finite gradients; None where nothing counts them.
    """

    applied: int
    skipped: Optional[int] = None

    @property
    def attempted(self) -> Optional[int]:
        """Applied and skipped together."""
        return None if self.skipped is None else self.applied + self.skipped


@dataclasses.dataclass(frozen=True)
class ServedPart:
    """A variable, or one shard of one, of a model that trains with parameter servers.

    Attributes:
        device: TensorFlow's full name of its device.
        rows: Length of its first axis; 0 for a scalar.
        size_bytes: Its size; texts count as nothing.
    """

    device: str
    rows: int
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What ``intercept`` calls inside an unmodified script.

    Attributes:
        before_layer: Called once, before the first layer, model or optimiser is constructed.
        compile_arguments: ``(model, kwargs) -> kwargs``: the arguments of ``compile``, positional ones already named.
        after_compile: ``(model) -> None``.
        fit_callbacks: ``(model, callbacks, fit_kwargs) -> callbacks``: what fit is given.
        after_fit: ``(model) -> None``; also after an exception in fit.
        fit_arguments: ``(model, kwargs) -> kwargs``: the arguments of ``fit`` but ``callbacks``, before the callbacks
            are made; None leaves them alone.
    """

    before_layer: Callable[[], None]
    compile_arguments: Callable[[Any, dict[str, Any]], dict[str, Any]]
    after_compile: Callable[[Any], None]
    fit_callbacks: Callable[[Any, Any, Mapping[str, Any]], Any]
    after_fit: Callable[[Any], None]
    fit_arguments: Optional[Callable[[Any, dict[str, Any]], dict[str, Any]]] = None
