"""Facts in lines for a terminal."""

from __future__ import annotations

from tfvolta.facts.horovod import fault
from tfvolta.facts.schema import Cpu, Facts, Gpu
from tfvolta.facts.topology import describe as describe_topology

_LIBRARIES = {"cuda_runtime": "CUDA runtime", "cudnn": "cuDNN", "cublas": "cuBLAS", "nccl": "NCCL"}


def describe(facts: Facts) -> list[str]:
    """What a person wants to know of a machine, one fact a line, notes last.

    Args:
        facts: Of this machine or a recorded one.
    """
    lines = [f"machine  {facts.host or 'unnamed'}"]
    lines += _gpu_lines(facts)
    lines += describe_topology(facts)
    if facts.driver:
        lines.append(f"driver   {facts.driver}, serves CUDA {facts.cuda_driver or 'of unknown version'}")
    known = [f"{label} {facts.libraries[name]}" for name, label in _LIBRARIES.items() if name in facts.libraries]
    if known:
        lines.append(f"library  {', '.join(known)}")
    lines.append(f"stack    {facts.stack} on Python {facts.python or 'of unknown version'}")
    lines += _tensorflow_lines(facts)
    lines.append(f"cpu      {_cpu(facts.cpu)}")
    lines += _numa_lines(facts)
    lines.append(f"memory   {_memory(facts.cpu)}")
    if facts.scheduler.kind != "none":
        details = ", ".join(f"{word} {value}" for word, value in facts.scheduler.details.items())
        lines.append(f"started  by {facts.scheduler.kind}{': ' + details if details else ''}")
    lines.append(f"source   {facts.source}")
    return lines + [f"note     {note}" for note in facts.notes]


def _gpu_lines(facts: Facts) -> list[str]:
    models: dict[str, list[int]] = {}
    for gpu in facts.gpus:
        models.setdefault(_gpu(gpu), []).append(gpu.index)
    if not models:
        return ["gpu      none"]
    first = {_gpu(gpu): gpu for gpu in reversed(facts.gpus)}
    return [
        line
        for words, indices in models.items()
        for line in (f"gpu      {len(indices)} x {words}", f"math     {arithmetic(first[words])}")
    ]


def arithmetic(gpu: Gpu) -> str:
    """Which arithmetic the GPU itself has. TensorFlow's switches are permissions and read the same on every machine."""
    kinds = {
        "float16 on Tensor Cores": gpu.has_float16_tensor_cores,
        "bfloat16": gpu.has_bfloat16,
        "TF32": gpu.has_tf32,
    }
    return "; ".join(f"{kind}: {'yes' if has else 'not available on this GPU'}" for kind, has in kinds.items())


def _gpu(gpu: Gpu) -> str:
    major, minor = gpu.compute_capability
    return f"{gpu.name}, {gpu.memory_mb} MiB, compute capability {major}.{minor}"


def _tensorflow_lines(facts: Facts) -> list[str]:
    build = facts.tensorflow
    lines = ["tf       not installed"]
    if build is not None:
        targets = ", ".join(build.compute_capabilities) or "CPU only"
        cuda = f"; CUDA {build.cuda_version}, cuDNN {build.cudnn_version}" if build.cuda_version else ""
        lines = [f"tf       TensorFlow {build.version}, compiled for {targets}{cuda}"]
    names = ("keras", "tf_keras", *(() if facts.horovod else ("horovod",)))
    keras = [f"{name} {facts.packages[name]}" for name in names if name in facts.packages]
    return lines + ([f"package  {', '.join(keras)}"] if keras else []) + _horovod_lines(facts)


def _horovod_lines(facts: Facts) -> list[str]:
    """One line where Horovod is installed, with what is wrong with it."""
    if facts.horovod is None:
        return []
    wrong = fault(facts)
    if wrong is not None:
        return [f"horovod  {facts.horovod.version}, unusable: {wrong.received}; {wrong.why}"]
    return [f"horovod  {facts.horovod.version}, compiled against TensorFlow {facts.horovod.tensorflow or 'unknown'}"]


def _cpu(cpu: Cpu) -> str:
    words = f"{cpu.model or 'unknown model'}, {cpu.cores} logical processors"
    if cpu.usable_cores < cpu.cores:
        words += f", {cpu.usable_cores:g} of them usable"
    return words


def _numa_lines(facts: Facts) -> list[str]:
    """One line a node where there are several."""
    if len(facts.numa_nodes) < 2:
        return []
    lines = []
    for node in facts.numa_nodes:
        gpus = ", ".join(str(gpu.index) for gpu in facts.gpus if gpu.numa_node == node.index)
        lines.append(f"numa     node {node.index}: processors {node.cpus}{f'; GPU {gpus}' if gpus else ''}")
    return lines


def _memory(cpu: Cpu) -> str:
    limit = f", the control group allows {cpu.memory_limit_mb} MiB" if cpu.memory_limit_mb else ""
    return f"{cpu.memory_mb} MiB{limit}"
