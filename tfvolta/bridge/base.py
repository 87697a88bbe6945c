"""The one interface through which the rest of the package reaches Keras's insides."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterable, Mapping, Optional, Protocol, Sequence


@dataclasses.dataclass(frozen=True)
class LossScaleSettings:
    """Loss scaling as the config asks for it; ``fixed`` wins over the dynamic pair."""

    initial: float = 32768.0
    growth_steps: int = 2000
    fixed: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class LossScaleState:
    """Loss scale of an optimiser at one moment.

    Attributes:
        scale: Current scale; the initial one before the optimiser is built.
        dynamic: Whether it changes with overflows.
        good_steps: Finite steps since the last change; None for a fixed scale.
    """

    scale: float
    dynamic: bool
    good_steps: Optional[int] = None


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
            none.
        functions: Number of concrete functions looked at.
        must_compile: Whether a function carries ``_XlaMustCompile``.
        collectives: Collective operations by type, such as ``{"CollectiveReduceV2": 4}``.
        hints: The same by type and ``communication_hint``, such as ``{"CollectiveReduceV2[nccl]": 4}``.
        traces: Outermost traces that the counts are summed over; a count divided by it is that of one step.
    """

    operations: Mapping[str, int]
    functions: int
    must_compile: bool
    collectives: Mapping[str, int]
    hints: Mapping[str, int] = dataclasses.field(default_factory=dict)
    traces: int = 1

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
    """

    faults: tuple[XlaFault, ...] = ()
    seconds: float = 0.0
    lowered: bool = True


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
class Hooks:
    """What ``intercept`` calls inside an unmodified script.

    Attributes:
        before_layer: Called once, before the first layer, model or optimiser is constructed.
        compile_arguments: ``(model, kwargs) -> kwargs``: the arguments of ``compile``, positional ones already named.
        after_compile: ``(model) -> None``.
        fit_callbacks: ``(model, callbacks, fit_kwargs) -> callbacks``: what fit is given.
        after_fit: ``(model) -> None``; also after an exception in fit.
        fit_arguments: ``(model, kwargs) -> kwargs``: the arguments of ``fit`` but ``callbacks``, before the callbacks are
            made; None leaves them alone.
    """

    before_layer: Callable[[], None]
    compile_arguments: Callable[[Any, dict[str, Any]], dict[str, Any]]
    after_compile: Callable[[Any], None]
    fit_callbacks: Callable[[Any, Any, Mapping[str, Any]], Any]
    after_fit: Callable[[Any], None]
    fit_arguments: Optional[Callable[[Any, dict[str, Any]], dict[str, Any]]] = None


class Bridge(Protocol):
    """What every Keras module of the bridge offers.

    ``model`` is any Keras model: functional, Sequential, subclassed or nested.
    """

    stack: str
    keras: Any

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model, each once, with a unique path; containers and cells included."""

    def compute_dtypes(self, model: Any) -> dict[str, str]:
        """Compute dtype of every layer that has variables or casts its inputs, by path."""

    def output_layers(self, model: Any) -> list[str]:
        """Paths of the layers that make the model's outputs; empty where they cannot be known before a trace."""

    def half_outputs(self, model: Any) -> Optional[tuple[str, ...]]:
        """Paths of the layers whose float16 or bfloat16 results are outputs; None where they are not known yet.

        The model's own name where its code makes the output out of something else.
        """

    def float32_outputs(self, model: Any) -> None:
        """Keeps the layers that make the outputs in float32 and leaves the others as they are."""

    def global_policy(self) -> str:
        """Name of Keras's global dtype policy."""

    def set_global_policy(self, policy: str) -> None:
        """Sets Keras's global dtype policy; binds to layers constructed afterwards."""

    def retrofit(
        self, model: Any, policy: str, float32_layers: Sequence[str] = (), float32_output: bool = True
    ) -> Retrofit:
        """Makes a built, perhaps compiled and traced, model compute under a policy; variables stay float32.

        Args:
            float32_layers: Class names or layer names or paths, shell patterns, kept in float32.
            float32_output: Keep the layers that make the outputs in float32.
        """

    def undo_retrofit(self, model: Any, retrofit: Retrofit) -> None:
        """Restores every layer's former policy and variables' casting."""

    def scale_optimizer(self, optimizer: Any, settings: LossScaleSettings) -> Any:
        """The optimiser in a loss-scale wrapper; one that has a wrapper gets the settings, not a second wrapper."""

    def install_loss_scale(self, model: Any, settings: LossScaleSettings) -> bool:
        """Wraps a compiled model's optimiser and makes saving remember it; slots and iterations are kept.

        Returns:
            False where it was so already.
        """

    def remove_loss_scale(self, model: Any) -> bool:
        """Puts the inner optimiser back, state kept; False where there was no wrapper."""

    def loss_scale(self, optimizer: Any) -> Optional[LossScaleState]:
        """Loss scale of an optimiser, or None where it has none."""

    def step_counts(self, model: Any) -> Optional[StepCounts]:
        """Optimiser steps applied and skipped so far; reads device values, so not for every batch."""

    def reset_functions(self, model: Any) -> None:
        """Forgets the traced train, test and predict functions, so that the next call traces anew."""

    def is_traced(self, model: Any) -> bool:
        """Whether the train function exists and was traced."""

    def is_compiled(self, model: Any) -> bool:
        """Whether ``compile`` was called."""

    def trace_count(self, model: Any) -> int:
        """How often the train function was traced so far; 0 before a trace and when run eagerly. Reads no device."""

    def train_graph(self, model: Any) -> Optional[GraphSummary]:
        """What the traced train functions contain; None before a trace or when run eagerly."""

    def set_jit(self, model: Any, value: bool) -> None:
        """Sets per-model XLA compilation so that the next train step has it, from any callback hook."""

    def jit(self, model: Any) -> JitState:
        """What the next or present train step gets."""

    def xla_obstacles(self, model: Any) -> list[str]:
        """Layers for which XLA compilation is known to fail, hang or be switched off, each with the reason."""

    def before_first_step(self, model: Any, action: Callable[[Any], None]) -> None:
        """Calls ``action(iterator)`` once, right before the train function runs next; from ``on_train_begin`` on.

        The action may set jit or reset the functions: the train function that the model has afterwards is run.
        """

    def try_xla(self, model: Any, iterator: Any) -> XlaTrial:
        """Traces the train function for an iterator and lowers its compiled part; nothing runs and no batch is taken.

        The trace is the one that training then uses.
        """

    def fit_data(self, model: Any) -> Optional[FitData]:
        """Rows and batches of the ``fit`` that is calling a callback; None outside one."""

    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        """Sets batches per call of the train function; outside fit only."""

    def steps_per_execution(self, model: Any) -> int:
        """Batches per call of the train function."""

    def mend(self, model: Any) -> bool:
        """Corrects what this Keras would do wrong in training the model whatever is asked; False if nothing is to do."""

    def examples_seen(self, model: Any) -> Optional[int]:
        """Examples of the running epoch, from the loss tracker's weight; one device read. None where it is not kept."""

    def callback_list(self, callbacks: Any, model: Any, **arguments: Any) -> Any:
        """A CallbackList for ``fit`` that converts logs to numbers only when a callback looks at them."""

    def intercept(self, hooks: Hooks) -> Callable[[], None]:
        """Wraps construction, ``compile`` and ``fit`` of every model class; the result undoes it."""

    def loop_optimizer(self, optimizer: Any, settings: LossScaleSettings, clipping: Mapping[str, float]) -> Any:
        """``scale_optimizer`` for a custom loop: counts steps, and sets clipping arguments on the inner optimiser."""

    def inner_optimizer(self, optimizer: Any) -> Any:
        """The optimiser inside a loss-scale wrapper; any other one itself."""

    def keeps_ema(self, optimizer: Any) -> bool:
        """Whether the optimiser, or the one inside a wrapper, keeps an average of the weights."""

    def accumulation_steps(self, optimizer: Any) -> int:
        """Micro-batches whose gradients the optimiser adds up for one update; 1 where it does not."""

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        """The loss times the loss scale; as it is where there is none."""

    def unscale_gradients(self, optimizer: Any, scaled: Any) -> Any:
        """Gradients of the scaled loss in their true size; any structure, None and slices kept."""

    def apply_true_gradients(self, optimizer: Any, grads_and_vars: Iterable[Any]) -> None:
        """One step with gradients of true size; skipped, and the scale adjusted, where they are not finite."""

    def current_scale(self, optimizer: Any) -> Any:
        """The loss scale as a float, 1.0 where there is none; a scalar tensor inside a graph."""

    def count_steps(self, model: Any) -> bool:
        """Makes a compiled model's loss-scale wrapper count what it skips; False where it does, or there is none."""

    def optimizer_step_counts(self, optimizer: Any) -> StepCounts:
        """``step_counts`` of an optimiser that no model holds."""
