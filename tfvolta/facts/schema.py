"""What this machine is, as data that can be recorded, replayed and compared. No TensorFlow needed."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic import BaseModel, ConfigDict, Field

Stack = Literal["keras3", "tf_keras", "keras2"]


class Fact(BaseModel):
    """Base of every fact: no unknown keys, no change after recording."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(Fact):
    """One NVIDIA GPU."""

    index: int = Field(ge=0)
    name: str
    memory_mb: int = Field(gt=0, description="Total device memory, MiB.")
    compute_capability: tuple[int, int]
    uuid: Optional[str] = None
    pci_bus_id: Optional[str] = None
    pcie_generation: Optional[int] = None
    pcie_width: Optional[int] = None
    numa_node: Optional[int] = Field(None, ge=0, description="NUMA node that it is attached to, where known.")

    @property
    def has_tf32(self) -> bool:
        """TensorFloat-32 exists from compute capability 8.0 on (NVIDIA Ampere)."""
        return self.compute_capability >= (8, 0)

    @property
    def has_bfloat16(self) -> bool:
        """bfloat16 Tensor Cores exist from compute capability 8.0 on."""
        return self.compute_capability >= (8, 0)

    @property
    def has_float16_tensor_cores(self) -> bool:
        """float16 Tensor Cores exist from compute capability 7.0 on (Volta)."""
        return self.compute_capability >= (7, 0)


class Link(Fact):
    """How two GPUs are joined, as ``nvidia-smi topo -m`` prints it."""

    a: int = Field(ge=0)
    b: int = Field(ge=0)
    kind: str = Field(description="NV1, NV2, ..., NV18, PIX, PXB, PHB, NODE or SYS.")

    @property
    def nvlinks(self) -> int:
        """Number of bonded NVLinks; 0 where the way goes over PCIe or the CPU interconnect."""
        return int(self.kind[2:]) if self.kind.startswith("NV") and self.kind[2:].isdigit() else 0


class TensorFlowBuild(Fact):
    """The installed TensorFlow wheel, read from its files."""

    version: str
    compute_capabilities: tuple[str, ...] = Field((), description="Such as sm_70 or compute_90; empty on a CPU build.")
    cuda_version: Optional[str] = None
    cudnn_version: Optional[str] = None


class HorovodBuild(Fact):
    """The installed Horovod, read from its files."""

    version: str
    tensorflow: Optional[str] = Field(None, description="Version of TensorFlow that it was compiled against.")
    has_library: bool = Field(True, description="Whether its TensorFlow part was compiled at all.")


class Cpu(Fact):
    """Processors and memory, with the limits of the control group."""

    model: str = ""
    cores: int = Field(gt=0, description="Logical processors of the machine.")
    cores_allowed: Optional[int] = Field(None, gt=0, description="Processors in this process's affinity mask.")
    cores_limit: Optional[float] = Field(None, description="Quota of the control group, in cores.")
    memory_mb: int = Field(gt=0)
    memory_limit_mb: Optional[int] = Field(None, description="Limit of the control group, MiB.")

    @property
    def usable_cores(self) -> float:
        """Cores that this process can keep busy: the least of machine, affinity mask and quota."""
        return min(float(limit) for limit in (self.cores, self.cores_allowed, self.cores_limit) if limit is not None)


class NumaNode(Fact):
    """Logical processors that share a memory."""

    index: int = Field(ge=0)
    cores: tuple[str, ...] = Field((), description="Logical processors of each core, such as 0,40.")
    cpus: str = Field("", description="All of them, such as 0-19,40-59.")


class Scheduler(Fact):
    """What started this process."""

    kind: Literal["none", "slurm", "kubernetes", "open_mpi", "mpich", "pbs", "lsf"] = "none"
    details: dict[str, str] = Field(default_factory=dict)


class Facts(Fact):
    """Everything that plans depend on.

    Attributes:
        schema_version: Raised when a field changes its meaning.
        source: ``live``, or where recorded facts came from.
        packages: Installed versions of the packages that matter, by distribution name.
        libraries: Versions of shared libraries that would be loaded: cudnn, nccl, cuda_runtime, cublas.
        notes: What could not be read, and why.
    """

    schema_version: Literal[1] = 1
    source: str = "live"
    host: str = ""
    stack: Stack = "keras3"
    python: str = ""
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    driver: Optional[str] = None
    cuda_driver: Optional[str] = Field(None, description="Highest CUDA version that the driver serves.")
    libraries: dict[str, str] = Field(default_factory=dict)
    tensorflow: Optional[TensorFlowBuild] = None
    horovod: Optional[HorovodBuild] = Field(None, description="None where it is not installed.")
    packages: dict[str, str] = Field(default_factory=dict)
    cpu: Cpu
    numa_nodes: tuple[NumaNode, ...] = Field((), description="Empty where the kernel tells none.")
    scheduler: Scheduler = Field(default_factory=Scheduler)
    notes: tuple[str, ...] = ()

    @property
    def keras(self) -> str:
        """``keras3`` or ``keras2``: which of the two Keras designs the stack has."""
        return "keras3" if self.stack == "keras3" else "keras2"
