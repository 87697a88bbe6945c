"""Whether XLA should compile a model's train step on this machine, stack and strategy, and why."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

MEASURED = (
    "ResNet-50 in mixed_float16 7.0x, BERT-large 4.4x (NVIDIA H200, TensorFlow 2.21; no V100 was available, published"
    " V100 figures are 1.13x to 1.45x)"
)


@dataclasses.dataclass(frozen=True)
class JitDecision:
    """Whether to compile, with one sentence that says why.

    Attributes:
        fix: The line to write where compiling was asked for and cannot be; empty otherwise.
    """

    on: bool
    reason: str
    fix: str = ""


@dataclasses.dataclass(frozen=True)
class JitSituation:
    """What the decision depends on.

    Attributes:
        keras: ``keras3`` or ``keras2``: which of the two Keras designs the stack has.
        gpus: Number of GPUs that TensorFlow may use.
        replicas: Replicas of the strategy.
        obstacles: Layers that XLA is known not to serve, each with the reason.
        hangs: Those of them whose compilation does not end.
        deterministic: Whether operations must be deterministic.
        replica_fault: Why a step of several replicas cannot be compiled here; empty where it can.
    """

    keras: str
    gpus: int
    replicas: int = 1
    obstacles: Sequence[str] = ()
    hangs: Sequence[str] = ()
    deterministic: bool = False
    replica_fault: str = ""


HANGS = "compilation can hang"  # in the reason of an obstacle
REPLICAS_FIX = (
    "set xla.jit: clustering (XLA compiles the parts of each replica's step that it can), or auto, or train on one "
    "device with strategy.kind: default"
)


SERVED_FAULT = "the variables are in other processes, and XLA compiles for the devices of one"
HOROVOD_FAULT = (
    "Horovod's all-reduce is no operation of XLA's: \"No registered 'HorovodAllreduce' OpKernel\" (builds for"
    " TensorFlow up to 2.18 may have one for CUDA, HOROVOD_ENABLE_XLA_OPS, which nothing here has verified)"
)


def replica_fault(devices: Sequence[str], replicas: int) -> Optional[str]:
    """Why the step of several replicas cannot be compiled, or None where it can.

    On GPUs each replica's step is compiled by itself, on every stack; on CPU devices that fails on every stack.

    Args:
        devices: Devices of the replicas in this process, such as ``GPU:0``.
        replicas: Replicas of all processes together.
    """
    if replicas < 2 or not any(name.startswith("CPU") for name in devices):
        return None
    if len(devices) < 2:
        return "XLA has no all-reduce between processes on CPU devices: 'UnimplementedError'"
    return (
        "XLA compiles the step for one device and cannot reach the copies of the variables on the others: "
        f"'Trying to access resource located in device {devices[1]}'"
    )


def decide_jit(asked: str, situation: JitSituation) -> JitDecision:
    """Decides for ``auto``; ``model`` and ``off`` are what was asked for.

    Args:
        asked: ``auto``, ``model`` or ``off``.
        situation: The machine, stack, strategy and model.
    """
    if asked == "model" and situation.replica_fault:
        several = f" with {situation.replicas} replicas" if situation.replicas > 1 else ""
        return JitDecision(False, f"jit_compile=True{several}: {situation.replica_fault}.", REPLICAS_FIX)
    if asked == "model" and situation.hangs:
        return JitDecision(False, f"{'; '.join(situation.hangs)}.", "set xla.jit: auto or off for this model")
    if asked != "auto":
        return JitDecision(asked == "model", f"xla.jit: {asked} asks for it.")
    if situation.gpus == 0:
        return JitDecision(
            False, "No GPU is in use; compiling is chosen for GPUs only (xla.jit: model compiles on a CPU too)."
        )
    if situation.replica_fault:
        several = f"{situation.replicas} replicas: " if situation.replicas > 1 else ""
        return JitDecision(False, f"{several}{situation.replica_fault}.")
    if situation.obstacles:
        return JitDecision(False, f"XLA does not serve this model: {'; '.join(situation.obstacles)}.")
    if situation.keras == "keras3" and situation.deterministic:
        return JitDecision(False, "Keras 3 leaves XLA off while operations must be deterministic.")
    inside = f"Each of {situation.replicas} replicas has a compiled step of its own. " if situation.replicas > 1 else ""
    return JitDecision(True, f"{inside}One compiled step fuses what single kernels leave apart: {MEASURED}.")


def planned_situation(facts: Any, config: Any) -> JitSituation:
    """What is known before there is a model: machine, stack and the strategy that the config names."""
    visible = config.get("devices.visible")
    gpus = len(facts.gpus) if visible in (None, "all") else len(visible)
    kind = config.get("strategy.kind") or "default"
    devices = config.get("strategy.devices")
    replicas = len(devices) if isinstance(devices, list) else max(1, gpus)
    if kind == "multi_worker_mirrored":
        replicas = max(2, replicas)  # a plan with fewer workers is refused
    return JitSituation(
        keras=facts.keras,
        gpus=gpus if facts.gpus else 0,
        replicas=replicas if kind in ("mirrored", "multi_worker_mirrored", "central_storage") else 1,
        deterministic=bool(config.get("debug.deterministic")),
        replica_fault={"horovod": HOROVOD_FAULT, "parameter_server": SERVED_FAULT}.get(kind, ""),
    )
