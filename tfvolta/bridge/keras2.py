"""The bridge to Keras 2.15 and to tf_keras, which share one design."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge.footprint_part import FootprintPart
from tfvolta.bridge.keras2_callbacks import CallbackPart
from tfvolta.bridge.keras2_coordination import CoordinationPart
from tfvolta.bridge.keras2_custom_loop import CustomLoopPart
from tfvolta.bridge.keras2_functions import FunctionPart
from tfvolta.bridge.keras2_half_outputs import HalfOutputPart
from tfvolta.bridge.keras2_intercept import InterceptionPart
from tfvolta.bridge.keras2_kernels import KernelPart
from tfvolta.bridge.keras2_loss_scale import LossScalePart
from tfvolta.bridge.keras2_optimizers import OptimizerPart
from tfvolta.bridge.keras2_package import load_package
from tfvolta.bridge.keras2_precision import PrecisionPart
from tfvolta.bridge.keras2_recompute import Keras2Recompute
from tfvolta.bridge.keras2_reduction import Keras2Reduction
from tfvolta.bridge.keras2_resuming import ResumingPart
from tfvolta.bridge.keras2_symbolic import FootprintAdapter
from tfvolta.bridge.padding_part import PaddingPart
from tfvolta.bridge.recompute_part import RecomputePart
from tfvolta.bridge.reduction_part import ReductionPart
from tfvolta.bridge.replay_part import ReplayPart
from tfvolta.bridge.step_guard import GuardPart
from tfvolta.bridge.step_metrics import KERAS2
from tfvolta.bridge.watch_part import WatchPart
from tfvolta.bridge.xla_part import XlaPart


class Keras2Bridge(
    PrecisionPart,
    LossScalePart,
    FunctionPart,
    CallbackPart,
    CoordinationPart,
    InterceptionPart,
    CustomLoopPart,
    FootprintPart,
    GuardPart,
    HalfOutputPart,
    KernelPart,
    OptimizerPart,
    PaddingPart,
    RecomputePart,
    ReductionPart,
    ReplayPart,
    ResumingPart,
    WatchPart,
    XlaPart,
):
    """``tfvolta.bridge.base.Bridge`` for Keras 2; each part is in a file of its own.

    Attributes:
        stack: ``keras2`` or ``tf_keras``.
        keras: The Keras package.
    """

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self.package = load_package(stack)
        self.keras: Any = self.package.keras
        self.footprint_adapter = FootprintAdapter(self.package)
        self.recompute_adapter = Keras2Recompute(self.package)
        self.reduction_adapter = Keras2Reduction(self.package)
        self.step_metrics = KERAS2


def make_bridge(stack: str) -> Keras2Bridge:
    """The bridge of a stack.

    Args:
        stack: ``keras2`` for Keras 2.15 or ``tf_keras``.

    Raises:
        BridgeError: The installed package is not of the Keras 2 design.
    """
    return Keras2Bridge(stack)
