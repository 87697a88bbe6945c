"""The GPUs of this machine, through NVML where nvidia-ml-py is installed, otherwise through ``nvidia-smi``.

Neither starts CUDA in this process, so a later choice of devices stays open. Both are optional, and a driver that
answers wrongly, late or not at all becomes a note.

Source: NVIDIA Management Library API reference; ``nvidia-smi --help-query-gpu``.
"""

from __future__ import annotations

import csv
import importlib
import pathlib
import re
import shutil
import subprocess
from typing import Any, Callable, Mapping, NamedTuple, Optional

from tfvolta.facts import nvlink
from tfvolta.facts.schema import Gpu, Link
from tfvolta.facts.topology import parse_topology

TIMEOUT_SECONDS = 5.0
_MIB = 1024 * 1024
_QUERY = "index,name,memory.total,compute_cap,uuid,pci.bus_id,pcie.link.gen.max,pcie.link.width.max,driver_version"


class GpuReading(NamedTuple):
    """What was read of GPUs and driver."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    driver: Optional[str] = None
    cuda_driver: Optional[str] = None


def read_gpus(environ: Mapping[str, str], notes: list[str], nvml: Optional[Any] = None) -> GpuReading:
    """Every GPU that the driver shows, whatever CUDA_VISIBLE_DEVICES says.

    Args:
        environ: The process environment; ``nvidia-smi`` is looked for in its PATH.
        notes: Receives what could not be read, and why.
        nvml: The module ``pynvml``; None to do without NVML.
    """
    reading = _from_nvml(nvml, notes) if nvml is not None else None
    if reading is not None and (reading.links or len(reading.gpus) < 2):
        return reading
    command = shutil.which("nvidia-smi", path=environ.get("PATH", ""))
    if command is None:
        if reading is None:
            notes.append("GPU: nvidia-smi is not in PATH, so no NVIDIA driver is taken to be installed")
        return reading or GpuReading()
    if reading is None:
        reading = _from_nvidia_smi(command, environ, notes)
    if len(reading.gpus) > 1:
        matrix = parse_topology(_output([command, "topo", "-m"], environ, notes) or "")
        notes.extend(matrix.notes)
        reading = reading._replace(links=matrix.links)
    return reading


def import_nvml(notes: list[str]) -> Optional[Any]:
    """The module ``pynvml``, or None with a note."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        notes.append("GPU: nvidia-ml-py is not installed; nvidia-smi serves instead")
    except Exception as error:  # an unrelated or broken pynvml can raise anything at import
        notes.append(f"GPU: pynvml cannot be imported ({type(error).__name__}: {error})")
    return None


def _from_nvml(nvml: Any, notes: list[str]) -> Optional[GpuReading]:
    try:
        nvml.nvmlInit()
    except Exception as error:  # no library, no driver, or a version that does not match the kernel module's
        notes.append(f"GPU: NVML cannot start ({error})")
        return None
    try:
        count = int(nvml.nvmlDeviceGetCount())
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        found = [_nvml_gpu(nvml, index, handle, notes) for index, handle in enumerate(handles)]
        gpus = tuple(gpu for gpu in found if gpu is not None)
        links = nvlink.read_links(nvml, handles, notes) if len(gpus) > 1 else ()
        cuda = _optional(nvml.nvmlSystemGetCudaDriverVersion)
        return GpuReading(
            gpus,
            links,
            _text(_optional(nvml.nvmlSystemGetDriverVersion)),
            f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) and cuda > 0 else None,
        )
    except Exception as error:
        notes.append(f"GPU: NVML stopped answering ({error})")
        return None
    finally:
        _optional(nvml.nvmlShutdown)


def _nvml_gpu(nvml: Any, index: int, handle: Any, notes: list[str]) -> Optional[Gpu]:
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        return Gpu(
            index=index,
            name=_text(nvml.nvmlDeviceGetName(handle)) or "",
            memory_mb=int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
            compute_capability=(int(major), int(minor)),
            uuid=_text(_optional(lambda: nvml.nvmlDeviceGetUUID(handle))),
            pci_bus_id=_text(_optional(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)),
            pcie_generation=_optional(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))),
            pcie_width=_optional(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))),
        )
    except Exception as error:  # a lost or unsupported GPU must not hide the others
        notes.append(f"GPU {index}: left out, NVML does not describe it ({error})")
        return None


def _optional(call: Callable[[], Any]) -> Any:
    """The result, or None where the driver does not serve that question."""
    try:
        return call()
    except Exception:  # NVMLError, or an attribute that this version of the module lacks
        return None


def _text(value: Any) -> Optional[str]:
    """Older versions of nvidia-ml-py return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _output(command: list[str], environ: Mapping[str, str], notes: list[str]) -> Optional[str]:
    words = " ".join(["nvidia-smi", *command[1:]]).partition(" --")[0]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        notes.append(f"GPU: {words} gave no answer in {TIMEOUT_SECONDS:g} s")
        return None
    except OSError as error:
        notes.append(f"GPU: {words} cannot be run ({error})")
        return None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
        notes.append(f"GPU: {words} failed with exit code {done.returncode} and said: {said}")
        return None
    return done.stdout


def _from_nvidia_smi(command: str, environ: Mapping[str, str], notes: list[str]) -> GpuReading:
    text = _output([command, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"], environ, notes)
    if text is None:
        return GpuReading()
    gpus, driver = [], None
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        gpu = _row_gpu([cell.strip() for cell in row])
        if gpu is None:
            notes.append(f"GPU: nvidia-smi printed a line that cannot be read: {', '.join(row)!r}")
            continue
        gpus.append(gpu)
        driver = row[8].strip() if len(row) > 8 else None
    return GpuReading(tuple(gpus), (), driver, _cuda_driver(command, environ, notes) if gpus else None)


def _row_gpu(row: list[str]) -> Optional[Gpu]:
    if len(row) < 9 or not re.fullmatch(r"\d+\.\d+", row[3]) or not (row[0].isdigit() and row[2].isdigit()):
        return None
    major, minor = row[3].split(".")
    return Gpu(
        index=int(row[0]),
        name=row[1],
        memory_mb=int(row[2]),
        compute_capability=(int(major), int(minor)),
        uuid=row[4] or None,
        pci_bus_id=row[5] or None,
        pcie_generation=int(row[6]) if row[6].isdigit() else None,
        pcie_width=int(row[7]) if row[7].isdigit() else None,
    )


def _cuda_driver(command: str, environ: Mapping[str, str], notes: list[str]) -> Optional[str]:
    """The CUDA version is in no query field; the plain table's head and ``-q`` print it."""
    match = re.search(r"CUDA Version\s*:\s*(\d+\.\d+)", _output([command, "-q", "-i", "0"], environ, notes) or "")
    return match.group(1) if match else None


def nvml_for(root: pathlib.Path, notes: list[str]) -> Optional[Any]:
    """NVML speaks of the machine it runs on, so another root has none."""
    return import_nvml(notes) if root == pathlib.Path("/") else None
