"""What tfvolta adds to ``model.fit(callbacks=...)``; every class can be made without TensorFlow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfvolta.callbacks.alarms import Alarms
    from tfvolta.callbacks.apply_plan import ApplyPlan
    from tfvolta.callbacks.average_metrics import AverageMetrics
    from tfvolta.callbacks.base import Callback
    from tfvolta.callbacks.broadcast_state import BroadcastState
    from tfvolta.callbacks.build import session_callbacks
    from tfvolta.callbacks.checkpoint import Checkpoint
    from tfvolta.callbacks.compile_ledger import CompileLedger
    from tfvolta.callbacks.cudnn_workspace import CudnnWorkspace
    from tfvolta.callbacks.device_memory import DeviceMemory
    from tfvolta.callbacks.first_rank_output import FirstRankOutput
    from tfvolta.callbacks.gradient_checkpointing import GradientCheckpointing
    from tfvolta.callbacks.gradient_monitor import GradientMonitor
    from tfvolta.callbacks.horovod import Horovod
    from tfvolta.callbacks.input_share import InputShare
    from tfvolta.callbacks.kernels import Kernels
    from tfvolta.callbacks.loss_scale_monitor import LossScaleMonitor
    from tfvolta.callbacks.memory_growth import MemoryGrowth
    from tfvolta.callbacks.mixed_precision import MixedPrecision
    from tfvolta.callbacks.out_of_memory import OutOfMemory
    from tfvolta.callbacks.rank_check import RankCheck
    from tfvolta.callbacks.tensor_cores import TensorCores
    from tfvolta.callbacks.throughput import Throughput
    from tfvolta.callbacks.watchdog import Watchdog
    from tfvolta.callbacks.xla_jit import XlaJit

_MODULES = {
    "Alarms": "alarms",
    "ApplyPlan": "apply_plan",
    "AverageMetrics": "average_metrics",
    "BroadcastState": "broadcast_state",
    "Callback": "base",
    "Checkpoint": "checkpoint",
    "CompileLedger": "compile_ledger",
    "CudnnWorkspace": "cudnn_workspace",
    "DeviceMemory": "device_memory",
    "FirstRankOutput": "first_rank_output",
    "GradientCheckpointing": "gradient_checkpointing",
    "GradientMonitor": "gradient_monitor",
    "Horovod": "horovod",
    "InputShare": "input_share",
    "Kernels": "kernels",
    "LossScaleMonitor": "loss_scale_monitor",
    "MemoryGrowth": "memory_growth",
    "MixedPrecision": "mixed_precision",
    "OutOfMemory": "out_of_memory",
    "RankCheck": "rank_check",
    "TensorCores": "tensor_cores",
    "Throughput": "throughput",
    "Watchdog": "watchdog",
    "XlaJit": "xla_jit",
    "session_callbacks": "build",
}

__all__ = [
    "Alarms",
    "ApplyPlan",
    "AverageMetrics",
    "BroadcastState",
    "Callback",
    "Checkpoint",
    "CompileLedger",
    "CudnnWorkspace",
    "DeviceMemory",
    "FirstRankOutput",
    "GradientCheckpointing",
    "GradientMonitor",
    "Horovod",
    "InputShare",
    "Kernels",
    "LossScaleMonitor",
    "MemoryGrowth",
    "MixedPrecision",
    "OutOfMemory",
    "RankCheck",
    "TensorCores",
    "Throughput",
    "Watchdog",
    "XlaJit",
    "session_callbacks",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
