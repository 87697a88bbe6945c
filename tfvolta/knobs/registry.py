"""Every knob there is, in the order in which knobs of one phase are applied."""

from __future__ import annotations

import difflib
import functools
from typing import Any

from tfvolta.knobs.addons import Addons
from tfvolta.knobs.alarms import Alarms
from tfvolta.knobs.allocator import Allocator
from tfvolta.knobs.auto_clustering import AutoClustering
from tfvolta.knobs.base import Knob
from tfvolta.knobs.batch_size import BatchSize
from tfvolta.knobs.built_islands import BuiltIslands
from tfvolta.knobs.checkpoint import Checkpointing
from tfvolta.knobs.cluster import ClusterResolution
from tfvolta.knobs.cudnn import CudnnAutotune, CudnnWorkspace
from tfvolta.knobs.determinism import Determinism
from tfvolta.knobs.drop_remainder import DropRemainder
from tfvolta.knobs.first_all_reduce import FirstAllReduce
from tfvolta.knobs.fused_update import FusedUpdate
from tfvolta.knobs.gpu_threads import GpuThreadMode, GpuThreads
from tfvolta.knobs.gradient_monitor import GradientMonitor
from tfvolta.knobs.guard import Guard
from tfvolta.knobs.half_input import HalfInput
from tfvolta.knobs.horovod_environment import (
    HorovodAutotune,
    HorovodCycle,
    HorovodFusion,
    HorovodHierarchy,
    HorovodTimeline,
)
from tfvolta.knobs.input import DevicePrefetch, HostMemoryLimit, InputOptions, InputPrefetch
from tfvolta.knobs.input_cache import InputCache
from tfvolta.knobs.islands import Float32Islands
from tfvolta.knobs.jit import Jit
from tfvolta.knobs.kernels import CudnnRnn, FusedBatchNorm
from tfvolta.knobs.launch_blocking import LaunchBlocking
from tfvolta.knobs.layout import LayoutOptimizer
from tfvolta.knobs.learning_rate import LearningRate
from tfvolta.knobs.logical_cpus import LogicalCpus
from tfvolta.knobs.loss_scale import LossScale
from tfvolta.knobs.memory import MemoryGrowth, MemoryLimit
from tfvolta.knobs.nccl import Nccl
from tfvolta.knobs.on_oom import OnOom
from tfvolta.knobs.optimizer import Optimizer
from tfvolta.knobs.pad_remainder import PadRemainder
from tfvolta.knobs.policy import Policy
from tfvolta.knobs.preflight import Preflight
from tfvolta.knobs.recompute import Recompute
from tfvolta.knobs.retrofit import Retrofit
from tfvolta.knobs.seed import Seed
from tfvolta.knobs.sequences import SequenceBatches
from tfvolta.knobs.sharding import DataSharding
from tfvolta.knobs.steps import StepsPerExecution
from tfvolta.knobs.tf32 import Tf32
from tfvolta.knobs.threads import InterOpThreads, IntraOpThreads
from tfvolta.knobs.uneven import Uneven
from tfvolta.knobs.visibility import VisibleDevices
from tfvolta.knobs.watchdog import Watchdog
from tfvolta.knobs.xla_cache import XlaCache
from tfvolta.knobs.xla_environment import XlaFlags

_KNOBS: tuple[type[Knob], ...] = (
    ClusterResolution,
    Preflight,  # after the cluster, whose members it meets, and before anything that costs time
    Allocator,
    GpuThreadMode,
    GpuThreads,
    CudnnWorkspace,
    CudnnAutotune,
    XlaFlags,
    XlaCache,  # after the flags, which are part of its folder's name
    Nccl,
    HorovodFusion,
    HorovodCycle,
    HorovodHierarchy,
    HorovodTimeline,
    HorovodAutotune,
    LaunchBlocking,
    HostMemoryLimit,
    VisibleDevices,  # before the memory knobs, which touch visible GPUs only
    MemoryGrowth,
    MemoryLimit,
    InterOpThreads,
    IntraOpThreads,
    LogicalCpus,
    Tf32,
    Determinism,
    Seed,
    FirstAllReduce,  # before anything of the model
    Policy,
    BuiltIslands,
    Optimizer,  # before the loss scale, which goes around it, and the learning rate, which is its own
    StepsPerExecution,
    Retrofit,  # before the loss scale, so that a plain optimizer is wrapped once
    Float32Islands,
    LossScale,
    LearningRate,
    Addons,
    BatchSize,  # before what looks at the size of batches
    DropRemainder,
    PadRemainder,
    SequenceBatches,
    DataSharding,
    InputCache,
    InputOptions,
    InputPrefetch,
    DevicePrefetch,
    HalfInput,
    Jit,
    AutoClustering,
    FusedBatchNorm,
    CudnnRnn,
    FusedUpdate,
    Recompute,  # after what changes layers, so that they run so in both passes
    LayoutOptimizer,
    Checkpointing,
    GradientMonitor,
    Alarms,
    Guard,
    Uneven,
    OnOom,
    Watchdog,
)


@functools.cache
def knobs() -> tuple[Knob, ...]:
    """Every knob, in the order in which knobs of one phase are applied."""
    return tuple(knob() for knob in _KNOBS)


def knob(name: str) -> Knob:
    """The knob of a name.

    Raises:
        KeyError: There is none; the message names the nearest.
    """
    found = {each.name: each for each in knobs()}
    if name in found:
        return found[name]
    near = difflib.get_close_matches(name, found, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise KeyError(f"no knob is named {name!r}{hint} There are: {', '.join(sorted(found))}")


def knobs_for(config: Any) -> list[tuple[Knob, Any]]:
    """The knobs that a config asks for, with their values, ordered by phase."""
    asked = [(each, each.value(config)) for each in knobs()]
    return sorted(((each, value) for each, value in asked if value is not None), key=lambda pair: pair[0].phase)
