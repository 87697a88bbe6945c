"""Sections of the config about several devices, processes and machines."""

from __future__ import annotations

from typing import Literal, Optional, Union

from pydantic import Field

from tfvolta.config.section import Section

Kind = Literal[
    "default", "one_device", "mirrored", "multi_worker_mirrored", "horovod", "parameter_server", "central_storage"
]
Resolver = Literal["auto", "tf_config", "horovod", "open_mpi", "mpich", "slurm", "kubernetes", "local"]


class Strategy(Section):
    """How training is spread over devices."""

    kind: Kind = Field("default", description="tf.distribute strategy.")
    devices: Union[Literal["all"], list[str]] = Field("all", description="Devices such as GPU:0 or CPU:1, or all.")
    logical_cpus: Optional[int] = Field(
        None, gt=0, description="Split the CPU into so many logical devices, for trying a strategy without GPUs."
    )
    shard_above_mb: Optional[int] = Field(
        None, gt=0, description="Larger variables are split over the parameter servers, MiB (parameter_server; 128)."
    )


class Communication(Section):
    """How gradients are reduced; each strategy kind takes what it really has."""

    implementation: Literal["auto", "nccl", "ring", "hierarchical_copy", "reduction_to_one_device"] = Field(
        "auto", description="All-reduce algorithm."
    )
    num_packs: Optional[int] = Field(
        None, ge=0, description="Packs of gradients per all-reduce (mirrored); 0 is one per tensor."
    )
    pack_mb: Optional[int] = Field(
        None, gt=0, description="Size of a pack of gradients, MiB (mirrored with auto, multi_worker_mirrored, horovod)."
    )
    timeout_seconds: Optional[float] = Field(
        None, gt=0, description="Limit for one collective (multi_worker_mirrored; 600 where nothing is given)."
    )
    hierarchical: Optional[bool] = Field(
        None, description="Reduce inside each machine first, then between machines (horovod with NCCL)."
    )
    compression: Optional[Literal["none", "fp16"]] = Field(
        None, description="Number format in which gradients travel; fp16 halves the bytes."
    )
    reduce_every: Optional[int] = Field(
        None, gt=0, description="Batches whose gradients are added up before one all-reduce and one update."
    )
    cycle_time_ms: Optional[float] = Field(
        None, gt=0, description="How long gradients are collected before they are fused and reduced (horovod)."
    )
    groups: Optional[int] = Field(
        None, gt=0, description="Groups of gradients, each reduced when all of it is there (horovod)."
    )


class Nccl(Section):
    """NCCL's environment; read at the first NCCL call."""

    algorithm: Optional[Literal["Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree"]] = Field(
        None, description="NCCL_ALGO: the only collective algorithm that NCCL may choose."
    )
    protocol: Optional[Literal["LL", "LL128", "Simple"]] = Field(
        None, description="NCCL_PROTO: the only protocol that NCCL may choose."
    )
    socket_interface: Optional[str] = Field(None, min_length=1, description="Prefix list; ^ excludes, = is exact.")
    debug: Optional[Literal["VERSION", "WARN", "INFO", "TRACE"]] = Field(
        None, description="NCCL_DEBUG: what NCCL writes about itself."
    )


class Horovod(Section):
    """What only Horovod has."""

    average_metrics: bool = Field(True, description="Average the metrics of an epoch over the ranks.")
    sparse_as_dense: Literal["auto", "always", "never"] = Field(
        "auto", description="Reduce sparse gradients as dense ones; auto where the dense gradient is smaller."
    )
    predivide_factor: Optional[float] = Field(
        None, gt=0, description="Divide by this before the sum and by the rest after it, against overflow."
    )
    timeline: Optional[str] = Field(None, min_length=1, description="File for Horovod's timeline (Chrome trace).")
    autotune: Optional[bool] = Field(None, description="Let Horovod tune fusion and cycle time while training.")
    autotune_log: Optional[str] = Field(None, min_length=1, description="File for what autotune tried.")


class Cluster(Section):
    """Which processes train together, and how they are checked before training."""

    resolver: Resolver = Field("auto", description="Where the addresses of the workers come from.")
    port: Optional[int] = Field(
        None, ge=1024, le=65535, description="First port on each machine; by default one of the job's own."
    )
    parameter_servers: Optional[int] = Field(
        None, gt=0, description="How many of a launcher's processes are parameter servers (parameter_server; 1)."
    )
    preflight: bool = Field(True, description="Workers meet, compare versions and configs, before the model is built.")
    preflight_timeout_seconds: float = Field(120.0, gt=0, description="How long workers wait for each other.")


class Data(Section):
    """How data are divided between workers."""

    sharding: Optional[Literal["auto", "file", "data", "off"]] = Field(
        None, description="What each worker reads: its share of files, of examples, or all (off)."
    )
    uneven: Optional[Literal["error", "cut"]] = Field(
        None, description="Workers with different numbers of batches: refuse, or cut all to the smallest."
    )


class Checkpoint(Section):
    """Saving the state of training, and going on from it."""

    directory: str = Field("checkpoints", min_length=1, description="Folder, the same for all workers.")
    every_steps: Optional[int] = Field(None, gt=0, description="Save after so many batches.")
    every_epochs: Optional[int] = Field(None, gt=0, description="Save after so many epochs; 1 where nothing is given.")
    keep: int = Field(3, gt=0, description="Checkpoints that are kept.")
    resume: bool = Field(True, description="Go on from the newest checkpoint in the folder.")
    on_preemption: bool = Field(True, description="Save when the process is told to end (SIGTERM).")


class Watchdog(Section):
    """What happens when training makes no progress."""

    stall_seconds: float = Field(
        600.0, gt=0, description="Time without a finished step after which stacks are written."
    )
    first_step_seconds: Optional[float] = Field(
        None, gt=0, description="The same for a first step, which traces and compiles; three times it, 120 s at least."
    )
    end: bool = Field(True, description="End the process after the stacks were written.")
