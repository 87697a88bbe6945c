"""The one interface through which the rest of the package reaches Keras's insides."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Optional, Protocol, Sequence

from tfvolta.bridge.compiling import Compiling
from tfvolta.bridge.guard_records import Guarding
from tfvolta.bridge.input_records import Inputs
from tfvolta.bridge.kernel_records import KernelChange
from tfvolta.bridge.numerics import Numerics
from tfvolta.bridge.optimizer_records import LearningRateState, OptimizerChoice, OptimizerState
from tfvolta.bridge.recompute_records import Recomputing
from tfvolta.bridge.records import (
    CompileProbe,
    FitData,
    GraphSummary,
    Hooks,
    JitState,
    LossScaleSettings,
    LossScaleState,
    RefusedLayer,
    Retrofit,
    ServedPart,
    SkippedRow,
    StepCounts,
    XlaFault,
    XlaTrial,
)
from tfvolta.bridge.reduction import ReductionGraph, ReductionState
from tfvolta.bridge.resuming_records import Resuming
from tfvolta.footprint.layer import LayerFigures

__all__ = [
    "Bridge",
    "CompileProbe",
    "FitData",
    "GraphSummary",
    "Hooks",
    "JitState",
    "LossScaleSettings",
    "LossScaleState",
    "RefusedLayer",
    "Retrofit",
    "ServedPart",
    "SkippedRow",
    "StepCounts",
    "XlaFault",
    "XlaTrial",
]


class Bridge(Compiling, Guarding, Inputs, Numerics, Recomputing, Resuming, Protocol):
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

    def fit_data(self, model: Any) -> Optional[FitData]:
        """Rows and batches of the ``fit`` that is calling a callback; None outside one."""

    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        """Sets batches per call of the train function; outside fit only."""

    def steps_per_execution(self, model: Any) -> int:
        """Batches per call of the train function."""

    def set_reduction(self, model: Any, **settings: Any) -> bool:
        """Changes how a compiled model's gradients are reduced; from any hook before the first step of a fit.

        Gradients that wait for an update are forgotten, so a new fit starts with an empty window.

        Args:
            settings: Fields of ``ReductionSettings`` that change; the others stay.

        Returns:
            False where it was so already.
        """

    def reduction(self, model: Any) -> Optional[ReductionState]:
        """How gradients are reduced, and what was done in the present or last fit; None as in plain Keras."""

    def reduction_graphs(self, model: Any) -> Mapping[str, ReductionGraph]:
        """What is reduced in each traced train function, by ``accumulate`` and ``update``; empty before a trace."""

    def coordinate_fit(self) -> bool:
        """Makes ``fit``, ``evaluate`` and ``predict`` work under a parameter server strategy with what they are given.

        Nothing changes for models of other strategies. False where it was done already.
        """

    def served_parts(self, model: Any) -> Mapping[str, list[ServedPart]]:
        """Where each weight of a model lives, shard by shard, by name."""

    def served_slots(self, model: Any) -> Mapping[str, list[ServedPart]]:
        """Where each variable of a model's optimiser lives, likewise."""

    def install_kernel(self, model: Any, kind: str, always: bool = False) -> KernelChange:
        """Lets the layers of a kind use a faster kernel from their next trace on; results and saved form stay.

        Args:
            kind: ``fused_batch_norm`` or ``cudnn_rnn``.
            always: Use the kernel inside a step that XLA compiles too, where it can be.
        """

    def undo_kernel(self, model: Any, change: KernelChange) -> None:
        """Lets Keras run the layers that a change had put on a kernel."""

    def kernel_fallbacks(self, model: Any, kind: str) -> Mapping[str, str]:
        """Why layers that have a kernel ran Keras's own code in a trace, by path."""

    def compile_update(self, model: Any, wanted: bool) -> str:
        """Lets XLA compile the update of steps that it does not compile whole, from its next trace on; or no longer.

        Returns:
            Why the update stays as it is; empty where it does as asked.
        """

    def mend(self, model: Any) -> bool:
        """Corrects what this Keras would do wrong in training the model, asked or not; False if there is nothing."""

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

    def choose_optimizer(self, model: Any, choice: OptimizerChoice) -> None:
        """Replaces a compiled model's untrained optimiser; a loss-scale wrapper around it stays.

        Raises:
            BridgeError: The stack or the optimiser's family does not have what is asked for.
        """

    def optimizer_state(self, model: Any) -> Optional[OptimizerState]:
        """What a compiled model's optimiser is; None where it has none."""

    def prepare_optimizer(self, model: Any) -> None:
        """Makes the variables of a built model's optimiser that cannot be made while a step of replicas is traced."""

    def assign_average(self, model: Any) -> bool:
        """Gives the weights their average at the end of training; False where Keras does, or none is kept."""

    def learning_rate(self, model: Any) -> Optional[LearningRateState]:
        """The present learning rate; None where the model has no optimiser."""

    def set_learning_rate(self, model: Any, value: float) -> None:
        """Sets the learning rate of an optimiser that has no schedule; binds to the next step."""

    def scale_schedule(self, model: Any, factor: float) -> bool:
        """Multiplies all rates of the optimiser's schedule; False for a schedule that is not one of Keras's own."""

    def layer_figures(self, model: Any, batch_size: int, input_shape: Any = None) -> list[LayerFigures]:
        """Shapes, weights and multiply-adds of every layer, in the order of the forward pass; nothing is computed.

        The model is called once in training mode on placeholders. One that was never built is built by it.

        Args:
            model: Any Keras model.
            batch_size: Examples; of the whole batch, whatever the strategy makes of it.
            input_shape: Shape without the batch, or a list or dictionary of shapes, where the model does not know
                its inputs or leaves dimensions open.

        Raises:
            BridgeError: A dimension is not known, or the model cannot be called on these inputs.
        """

    def data_policy(self, model: Any) -> Optional[str]:
        """The sharding policy of the data that the running fit was given: ``auto``, ``file``, ``data``, ``hint`` or
        ``off``; empty for data that TensorFlow does not divide, None outside a fit."""
