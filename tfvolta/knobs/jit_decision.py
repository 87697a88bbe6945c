"""Whether XLA should compile a model's train step on this machine, stack and strategy, and why."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

MEASURED = (
    "ResNet-50 in mixed_float16 7.0x, BERT-large 4.4x (NVIDIA H200, TensorFlow 2.21; no V100 was available, published"
    " V100 figures are 1.13x to 1.45x)"
)


@dataclasses.dataclass(frozen=True)
class JitDecision:
    """Whether to compile, with one sentence that says why."""

    on: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class JitSituation:
    """What the decision depends on.

    Attributes:
        keras: ``keras3`` or ``keras2``: which of the two Keras designs the stack has.
        gpus: Number of GPUs that TensorFlow may use.
        replicas: Replicas of the strategy.
        obstacles: Layers that XLA is known not to serve, each with the reason.
        deterministic: Whether operations must be deterministic.
    """

    keras: str
    gpus: int
    replicas: int = 1
    obstacles: Sequence[str] = ()
    deterministic: bool = False


def decide_jit(asked: str, situation: JitSituation) -> JitDecision:
    """Decides for ``auto``; ``model`` and ``off`` are what was asked for.

    Args:
        asked: ``auto``, ``model`` or ``off``.
        situation: The machine, stack, strategy and model.
    """
    if asked != "auto":
        return JitDecision(asked == "model", f"xla.jit: {asked} asks for it.")
    if situation.gpus == 0:
        return JitDecision(
            False, "No GPU is in use; compiling is chosen for GPUs only (xla.jit: model compiles on a CPU too)."
        )
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
