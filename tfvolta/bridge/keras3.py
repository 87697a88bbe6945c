"""The bridge to Keras 3 on TensorFlow; each concern lies in a module of its own."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import keras

from tfvolta.bridge import (
    float32_construction,
    graphs,
    keras3_finite_check,
    keras3_functions,
    keras3_guard,
    keras3_interception,
    keras3_layers,
    keras3_logs,
    keras3_loss_scale,
    keras3_outputs,
    keras3_precision,
    keras3_reduction,
    keras3_step_loop,
)
from tfvolta.bridge.base import (
    GraphSummary,
    Hooks,
    JitState,
    LossScaleSettings,
    LossScaleState,
    Retrofit,
    SkippedRow,
    StepCounts,
)
from tfvolta.bridge.footprint_part import FootprintPart
from tfvolta.bridge.keras3_coordination import CoordinationPart, coordinated
from tfvolta.bridge.keras3_custom_loop import CustomLoopPart
from tfvolta.bridge.keras3_kernels import KernelPart
from tfvolta.bridge.keras3_optimizers import OptimizerPart
from tfvolta.bridge.keras3_recompute import Keras3Recompute
from tfvolta.bridge.keras3_reduction import ReductionPart
from tfvolta.bridge.keras3_resuming import ResumingPart
from tfvolta.bridge.keras3_symbolic import FootprintAdapter
from tfvolta.bridge.padding_part import PaddingPart
from tfvolta.bridge.recompute_part import RecomputePart
from tfvolta.bridge.replay_part import ReplayPart
from tfvolta.bridge.step_guard import GuardPart
from tfvolta.bridge.step_metrics import KERAS3
from tfvolta.bridge.watch_part import WatchPart
from tfvolta.bridge.xla_part import XlaPart
from tfvolta.errors import BridgeError, Problem


class _Layers:
    """Layers and precision."""

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        return keras3_layers.named_layers(model)

    def compute_dtypes(self, model: Any) -> dict[str, str]:
        return keras3_precision.compute_dtypes(model)

    def output_layers(self, model: Any) -> list[str]:
        makers = {id(layer) for layer in keras3_layers.output_makers(model) or ()}
        return [path for path, layer in keras3_layers.named_layers(model) if id(layer) in makers]

    def half_outputs(self, model: Any) -> Optional[tuple[str, ...]]:
        return keras3_outputs.half_outputs(model)

    def float32_outputs(self, model: Any) -> None:
        keras3_outputs.float32_outputs(model)

    def global_policy(self) -> str:
        return str(keras.config.dtype_policy().name)

    def set_global_policy(self, policy: str) -> None:
        keras.config.set_dtype_policy(policy)

    def retrofit(
        self, model: Any, policy: str, float32_layers: Sequence[str] = (), float32_output: bool = True
    ) -> Retrofit:
        return keras3_precision.retrofit(model, policy, float32_layers, float32_output)

    def undo_retrofit(self, model: Any, retrofit: Retrofit) -> None:
        keras3_precision.undo_retrofit(model, retrofit)


class _Numerics:
    """What looks after the range of numbers asks of layers."""

    def own_variables(self, layer: Any) -> list[Any]:
        return keras3_layers.own_variables(layer)

    def keep_float32_constructed(self, patterns: Sequence[str]) -> Callable[[], None]:
        return keras3_precision.keep_float32_constructed(patterns)

    def float32_constructed(self) -> tuple[str, ...]:
        return float32_construction.in_force(keras.Layer)

    def called_classes(self) -> Sequence[Any]:
        return keras3_layers.called_classes()


class _LossScale:
    """Loss scaling."""

    def scale_optimizer(self, optimizer: Any, settings: LossScaleSettings) -> Any:
        return keras3_loss_scale.scale_optimizer(optimizer, settings)

    def install_loss_scale(self, model: Any, settings: LossScaleSettings) -> bool:
        return keras3_loss_scale.install_loss_scale(model, settings)

    def remove_loss_scale(self, model: Any) -> bool:
        return keras3_loss_scale.remove_loss_scale(model)

    def loss_scale(self, optimizer: Any) -> Optional[LossScaleState]:
        return keras3_loss_scale.loss_scale(optimizer)

    def limit_loss_scale(self, model: Any) -> bool:
        return keras3_loss_scale.limit(model.optimizer)

    def scale_variable(self, optimizer: Any) -> Optional[Any]:
        return keras3_loss_scale.scale_variable(optimizer)

    def skipped_row(self, optimizer: Any) -> Optional[SkippedRow]:
        return keras3_loss_scale.skipped_row(optimizer)

    def step_counts(self, model: Any) -> Optional[StepCounts]:
        return keras3_loss_scale.step_counts(model)


class _TrainFunction:
    """The train function, its graph and XLA."""

    def reset_functions(self, model: Any) -> None:
        keras3_functions.reset(model)

    def is_traced(self, model: Any) -> bool:
        return keras3_functions.is_traced(model)

    def is_compiled(self, model: Any) -> bool:
        return bool(getattr(model, "compiled", False))

    def trace_count(self, model: Any) -> int:
        return graphs.trace_count(getattr(model, "train_function", None))

    def train_graph(self, model: Any) -> Optional[GraphSummary]:
        return graphs.summarize(model)

    def set_jit(self, model: Any, value: bool) -> None:
        keras3_functions.set_jit(model, value)

    def jit(self, model: Any) -> JitState:
        return keras3_functions.jit(model)

    def xla_obstacles(self, model: Any) -> list[str]:
        return keras3_functions.xla_obstacles(model)

    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        keras3_functions.set_steps_per_execution(model, steps)

    def steps_per_execution(self, model: Any) -> int:
        return int(model.steps_per_execution)

    def compile_update(self, model: Any, wanted: bool) -> str:
        return keras3_guard.compile_update(model, wanted)

    def mend(self, model: Any) -> bool:
        if coordinated(model):
            return False  # its functions are made for the coordinator
        return keras3_step_loop.mend(model) | keras3_reduction.mend(model) | keras3_finite_check.mend(model)


class Keras3Bridge(
    _Layers,
    _LossScale,
    _Numerics,
    _TrainFunction,
    CoordinationPart,
    CustomLoopPart,
    KernelPart,
    FootprintPart,
    GuardPart,
    OptimizerPart,
    PaddingPart,
    RecomputePart,
    ReductionPart,
    ReplayPart,
    ResumingPart,
    WatchPart,
    XlaPart,
):
    """``tfvolta.bridge.base.Bridge`` for Keras 3."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self.keras: Any = keras
        self.footprint_adapter = FootprintAdapter()
        self.recompute_adapter = Keras3Recompute()
        self.step_metrics = KERAS3

    def examples_seen(self, model: Any) -> Optional[int]:
        return keras3_functions.examples_seen(model)

    def callback_list(self, callbacks: Any, model: Any, **arguments: Any) -> Any:
        return keras3_logs.callback_list(callbacks, model, **arguments)

    def intercept(self, hooks: Hooks) -> Callable[[], None]:
        return keras3_interception.intercept(hooks)


def make_bridge(stack: str) -> Keras3Bridge:
    """The bridge of the stack ``keras3``.

    Raises:
        BridgeError: The installed Keras is not Keras 3 on TensorFlow.
    """
    if not keras.__version__.startswith("3.") or keras.backend.backend() != "tensorflow":
        raise BridgeError(
            "This is not Keras 3 on TensorFlow.",
            [
                Problem(
                    where=f"stack {stack}",
                    expected="keras 3.x with the TensorFlow backend",
                    received=f"keras {keras.__version__} with the {keras.backend.backend()} backend",
                    fix="set KERAS_BACKEND=tensorflow before Python starts",
                )
            ],
        )
    return Keras3Bridge(stack)
