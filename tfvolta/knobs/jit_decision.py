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
        deterministic: Whether operations must be deterministic.
        replica_fault: Why a step of several replicas cannot be compiled here; empty where it can.
    """

    keras: str
    gpus: int
    replicas: int = 1
    obstacles: Sequence[str] = ()
    deterministic: bool = False
    replica_fault: str = ""


REPLICAS_FIX = (
    "set xla.jit: clustering (XLA compiles the parts of each replica's step that it can), or auto, or train on one "
    "device with strategy.kind: default"
)


def replica_fault(keras: str, devices: Sequence[str], scaled: bool) -> Optional[str]:
    """Why the step of several replicas cannot be compiled, or None where it can.

    On CPU devices it fails on every stack. On GPUs Keras 2 compiles inside each replica, which works; Keras 3 compiles
    around all replicas, and its loss scaling then fails at the first step.

    Args:
        keras: ``keras3`` or ``keras2``.
        devices: Devices of the replicas, such as ``GPU:0``.
        scaled: Whether the loss is scaled.
    """
    if len(devices) < 2:
        return None
    if any(name.startswith("CPU") for name in devices):
        return (
            "XLA compiles the step for one device and cannot reach the copies of the variables on the others: "
            f"'Trying to access resource located in device {devices[1]}'"
        )
    if keras == "keras3" and scaled:
        return (
            "Keras 3 compiles around all replicas, where its LossScaleOptimizer fails: "
            "'merge_call called while defining a new graph'"
        )
    return None


def decide_jit(asked: str, situation: JitSituation) -> JitDecision:
    """Decides for ``auto``; ``model`` and ``off`` are what was asked for.

    Args:
        asked: ``auto``, ``model`` or ``off``.
        situation: The machine, stack, strategy and model.
    """
    if asked == "model" and situation.replica_fault:
        return JitDecision(
            False, f"jit_compile=True with {situation.replicas} replicas: {situation.replica_fault}.", REPLICAS_FIX
        )
    if asked != "auto":
        return JitDecision(asked == "model", f"xla.jit: {asked} asks for it.")
    if situation.gpus == 0:
        return JitDecision(
            False, "No GPU is in use; compiling is chosen for GPUs only (xla.jit: model compiles on a CPU too)."
        )
    if situation.replica_fault:
        return JitDecision(False, f"{situation.replicas} replicas: {situation.replica_fault}.")
    if situation.obstacles:
        return JitDecision(False, f"XLA does not serve this model: {'; '.join(situation.obstacles)}.")
    if situation.keras == "keras3" and situation.replicas > 1:
        return JitDecision(
            False,
            f"Keras 3 compiles around the strategy, and with {situation.replicas} replicas that fails "
            "('merge_call called while defining a new graph'); tf_keras compiles inside each replica.",
        )
    if situation.keras == "keras3" and situation.deterministic:
        return JitDecision(False, "Keras 3 leaves XLA off while operations must be deterministic.")
    return JitDecision(True, f"One compiled step fuses what single kernels leave apart: {MEASURED}.")


def planned_situation(facts: Any, config: Any) -> JitSituation:
    """What is known before there is a model: machine, stack and the strategy that the config names."""
    visible = config.get("devices.visible")
    gpus = len(facts.gpus) if visible in (None, "all") else len(visible)
    kind = config.get("strategy.kind") or "default"
    devices = config.get("strategy.devices")
    replicas = len(devices) if isinstance(devices, list) else max(1, gpus)
    return JitSituation(
        keras=facts.keras,
        gpus=gpus if facts.gpus else 0,
        replicas=replicas if kind in ("mirrored", "multi_worker_mirrored", "central_storage") else 1,
        deterministic=bool(config.get("debug.deterministic")),
    )
