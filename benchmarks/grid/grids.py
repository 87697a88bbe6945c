"""The grids: models, stacks and settings, 24 points each."""

from __future__ import annotations

import dataclasses
import math

from benchmarks.peers.workloads import FULL, TINY
from tfvolta.tune.grid import GridAxis

# Plain float32 without XLA: what nobody chose. TF32 as TensorFlow has it.
PLAIN = ("mixed_precision.policy=float32", "xla.jit=off", "kernels=null")


def axis(key: str, *values: str) -> GridAxis:
    """An axis whose options are values of one key."""
    return GridAxis(key=key, options=((), *((f"{key}={value}",) for value in values)))


HALF = axis("mixed_precision.policy", "mixed_float16")
XLA = axis("xla.jit", "model")
CLUSTERS = axis("xla.jit", "clustering")
CALLS = axis("fit.steps_per_execution", "10")
NORM = axis("kernels.fused_batch_norm", "auto", "on")
CUDNN_RNN = axis("kernels.cudnn_rnn", "auto", "on")
LAUNCH = GridAxis(
    key="devices.gpu_thread_mode",
    options=(
        (),
        ("devices.gpu_thread_mode=gpu_private", "devices.gpu_threads=2"),
        ("devices.gpu_thread_mode=gpu_shared", "devices.gpu_threads=2"),
    ),
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """One grid.

    Attributes:
        name: Model and stack.
        model: As the script calls it.
        stack: ``keras3`` or ``tf_keras``.
        axes: Settings.
        layers: Names of layers in the script's source that rules of the plan look for.
        tiny: Whether the small form of the model is trained.
        batch: Rows instead of the model's own.
        overrides: The baseline, on the default template.
    """

    name: str
    model: str
    stack: str
    axes: tuple[GridAxis, ...]
    layers: frozenset[str] = frozenset()
    tiny: bool = False
    batch: int = 0
    overrides: tuple[str, ...] = PLAIN

    @property
    def size(self) -> int:
        """Points."""
        return math.prod(len(each.options) for each in self.axes)

    @property
    def rows(self) -> int:
        """Of a batch."""
        return self.batch or (TINY if self.tiny else FULL)[self.model].batch


_LSTM = frozenset({"LSTM"})
_CPU_AXES = (
    XLA,
    axis("fit.steps_per_execution", "5", "20"),
    axis("devices.intra_op_threads", "1"),
    axis("devices.inter_op_threads", "1"),
)

GRIDS: tuple[Plan, ...] = (
    Plan("resnet50/keras3", "resnet50", "keras3", (HALF, XLA, CALLS, NORM)),
    Plan("resnet50/tf_keras", "resnet50", "tf_keras", (HALF, XLA, CALLS, LAUNCH)),
    Plan("bert_large/keras3", "bert_large", "keras3", (HALF, XLA, CALLS, LAUNCH)),
    Plan("bert_large/tf_keras", "bert_large", "tf_keras", (HALF, XLA, CALLS, LAUNCH)),
    Plan("lstm/keras3", "lstm", "keras3", (HALF, CLUSTERS, CALLS, CUDNN_RNN), _LSTM),
    Plan("lstm/tf_keras", "lstm", "tf_keras", (HALF, CLUSTERS, CALLS, LAUNCH), _LSTM),
    Plan("small/keras3", "bert_large", "keras3", _CPU_AXES, tiny=True),
)
