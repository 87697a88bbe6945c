"""The config's schema: strict, frozen, units in names. An absent section or key means: leave that alone."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BaseModel, Field, PrivateAttr

from tfvolta.config.distribution import (
    Checkpoint,
    Cluster,
    Communication,
    Data,
    Horovod,
    Nccl,
    Strategy,
    Watchdog,
)
from tfvolta.config.given import Given
from tfvolta.config.guarding import Guard
from tfvolta.config.input import Input, Sequences
from tfvolta.config.kernels import Kernels
from tfvolta.config.memory import Memory
from tfvolta.config.precision import Alarms, GradientMonitor, LossScale
from tfvolta.config.section import Section
from tfvolta.config.training import Addons, LearningRate, Optimizer


class Run(Section):
    """Where evidence goes, and how strictly outcomes are taken."""

    directory: str = Field("runs", min_length=1, description="Folder that holds one folder of evidence per run.")
    strict: bool = Field(True, description="LATE and NO_EFFECT are errors; false makes them warnings.")
    seed: Optional[int] = Field(None, ge=0, lt=2**32, description="Seed of Python, NumPy and TensorFlow.")


class Devices(Section):
    """GPUs, memory and threads."""

    visible: Optional[Union[Literal["all"], list[Annotated[int, Field(ge=0)]]]] = Field(
        None, description="GPU indices that TensorFlow may use, or all; [] hides every GPU."
    )
    memory_growth: Optional[bool] = Field(None, description="Allocate GPU memory as needed instead of nearly all.")
    memory_limit_mb: Optional[int] = Field(None, gt=0, description="Hard limit per GPU, MiB.")
    allocator: Optional[Literal["default", "cuda_malloc_async"]] = Field(None, description="GPU memory allocator.")
    gpu_thread_mode: Optional[Literal["global", "gpu_private", "gpu_shared"]] = Field(
        None, description="Threads that launch GPU kernels."
    )
    gpu_threads: Optional[int] = Field(None, gt=0, description="Launch threads per GPU (or shared).")
    inter_op_threads: Optional[int] = Field(
        None, ge=0, description="Threads across operations; 0 lets TensorFlow choose."
    )
    intra_op_threads: Optional[int] = Field(
        None, ge=0, description="Threads inside an operation; 0 lets TensorFlow choose."
    )


class MixedPrecision(Section):
    """Precision in which layers compute; variables stay float32."""

    policy: Literal["float32", "mixed_float16", "mixed_bfloat16"] = Field(
        "mixed_float16", description="Keras dtype policy."
    )
    float32_layers: list[str] = Field(
        default_factory=list,
        description="Layer classes or names (shell patterns) that keep computing in float32.",
    )
    float32_output: bool = Field(True, description="Model outputs are computed in float32 for a stable loss.")
    loss_scale: LossScale = Field(
        default_factory=lambda: LossScale(), description="Loss scaling for float16 gradients."
    )
    allow_bfloat16_emulation: bool = Field(False, description="Accept bfloat16 on a GPU without bfloat16 hardware.")


class Xla(Section):
    """XLA compilation."""

    jit: Optional[Literal["auto", "model", "clustering", "off"]] = Field(
        None, description="auto decides for this model, stack and strategy and says why."
    )
    drop_remainder: Optional[bool] = Field(
        None, description="Leave out the last, smaller batch of an epoch, which XLA would compile once more."
    )
    remainder: Optional[Literal["keep", "drop", "pad"]] = Field(
        None, description="What becomes of the last, smaller batch of an epoch; pad fills it up with rows of no weight."
    )
    compile_limit_seconds: Optional[float] = Field(
        None, gt=0, description="A train step that another process cannot compile in so long is not compiled."
    )
    cache_directory: Optional[str] = Field(
        None, min_length=1, description="Folder in which compiled steps are kept for later runs."
    )
    flags: list[Annotated[str, Field(pattern=r"^--")]] = Field(
        default_factory=list, description="Entries for XLA_FLAGS, such as --xla_gpu_autotune_level=4."
    )


class Cudnn(Section):
    """cuDNN's algorithm search, as used by TensorFlow's own kernels (XLA has its own)."""

    workspace_limit_mb: Optional[Union[Literal["auto"], Annotated[int, Field(gt=0)]]] = Field(
        None, description="Scratch memory per convolution, MiB; auto takes a share of the GPU's memory."
    )
    autotune: Optional[bool] = Field(None, description="Time the algorithms and keep the fastest.")


class Math(Section):
    """Arithmetic of float32 operations."""

    tf32: Optional[bool] = Field(None, description="TensorFloat-32 for float32 operations (compute capability 8.0 on).")


class Graph(Section):
    """TensorFlow's graph optimiser."""

    layout_optimizer: Optional[bool] = Field(None, description="Let grappler choose NCHW or NHWC for GPU kernels.")


class Fit(Section):
    """Arguments of the training loop."""

    steps_per_execution: Optional[int] = Field(None, gt=0, description="Batches per call of the train function.")
    batch_size: Optional[int] = Field(
        None, gt=0, description="Rows of a batch in place of the script's, of all replicas together (tfvolta run)."
    )


class Monitor(Section):
    """What is measured while training."""

    throughput: bool = Field(True, description="Examples a second and step times.")
    memory: bool = Field(True, description="Peak and current device memory.")
    loss_scale: bool = Field(True, description="Loss scale and skipped steps.")
    input: bool = Field(False, description="Share of the step time that is spent waiting for data.")
    tensor_cores: bool = Field(True, description="Layers that Tensor Cores serve, of a model in float16.")
    compilations: bool = Field(True, description="What was traced and compiled, where xla.jit is given.")
    compilations_limit: int = Field(4, ge=1, description="Compilations of a fit's train step taken as normal.")
    warmup_steps: int = Field(
        2, ge=0, description="First steps of a fit, tracing and compilation included, left out of figures."
    )


class Debug(Section):
    """Switches for looking for faults; they cost speed."""

    launch_blocking: Optional[bool] = Field(
        None, description="Wait for each CUDA kernel (-15.5 % throughput measured)."
    )
    deterministic: Optional[bool] = Field(None, description="Deterministic operations.")


class Config(Section):
    """A whole config. Each section may be absent.

    Attributes:
        provenance: Where each given value came from, by dotted key.
        given: The files and overrides that it was loaded from, as they were then.
    """

    run: Run = Field(default_factory=lambda: Run())
    devices: Optional[Devices] = None
    mixed_precision: Optional[MixedPrecision] = None
    xla: Optional[Xla] = None
    cudnn: Optional[Cudnn] = None
    kernels: Optional[Kernels] = None
    math: Optional[Math] = None
    graph: Optional[Graph] = None
    strategy: Optional[Strategy] = None
    communication: Optional[Communication] = None
    nccl: Optional[Nccl] = None
    horovod: Optional[Horovod] = None
    cluster: Optional[Cluster] = None
    data: Optional[Data] = None
    sequences: Optional[Sequences] = None
    input: Optional[Input] = None
    optimizer: Optional[Optimizer] = None
    addons: Optional[Addons] = None
    learning_rate: Optional[LearningRate] = None
    fit: Optional[Fit] = None
    memory: Optional[Memory] = None
    checkpoint: Optional[Checkpoint] = None
    watchdog: Optional[Watchdog] = None
    gradient_monitor: Optional[GradientMonitor] = None
    alarms: Optional[Alarms] = None
    guard: Optional[Guard] = None
    monitor: Monitor = Field(default_factory=lambda: Monitor())
    debug: Optional[Debug] = None

    _provenance: dict[str, Any] = PrivateAttr(default_factory=dict)
    _given: Given = PrivateAttr(default_factory=Given)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where each given value came from: dotted key to ``config.provenance.Origin``."""
        return self._provenance

    @property
    def given(self) -> Given:
        """What it was loaded from; empty for one that was made in Python."""
        return self._given

    def take_given(self, given: Given) -> None:
        """Notes what it was loaded from; for ``load_config``."""
        self._given = given

    def get(self, key: str) -> Any:
        """The value at a dotted key, or None where its section is absent.

        Args:
            key: Such as ``devices.memory_growth``.

        Raises:
            AttributeError: The schema has no such key.
        """
        if key not in known_keys():
            raise AttributeError(f"the config has no key {key!r}")
        value: Any = self
        for part in key.split("."):
            value = getattr(value, part)
            if value is None:
                return None
        return value

    def __eq__(self, other: object) -> bool:
        """Two configs are equal when they ask for the same; where the values came from does not count."""
        return isinstance(other, Config) and self.model_dump() == other.model_dump()


@functools.cache
def known_keys() -> frozenset[str]:
    """Every dotted key and section of the schema."""
    found: set[str] = set()
    waiting: list[tuple[str, type[BaseModel]]] = [("", Config)]
    while waiting:
        prefix, model = waiting.pop()
        for name, field in model.model_fields.items():
            found.add(prefix + name)
            for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
                if isinstance(kind, type) and issubclass(kind, Section):
                    waiting.append((f"{prefix}{name}.", kind))
    return frozenset(found)
