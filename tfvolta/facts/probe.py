"""Facts of this machine, collected without importing TensorFlow or Keras and without starting CUDA."""

from __future__ import annotations

import os
import pathlib
import platform
from typing import Mapping, Optional, Sequence

from tfvolta.facts.cpu import read_cpu
from tfvolta.facts.gpu import nvml_for, read_gpus
from tfvolta.facts.horovod import read_horovod
from tfvolta.facts.libraries import read_libraries
from tfvolta.facts.numa import read_nodes, with_nodes
from tfvolta.facts.packages import read_packages
from tfvolta.facts.scheduler import read_scheduler
from tfvolta.facts.schema import Facts
from tfvolta.facts.stack import checked_stack, find_stack
from tfvolta.facts.visibility import visibility_notes
from tfvolta.facts.wheel import read_tensorflow

__all__ = ["checked_stack", "probe"]


def probe(
    environ: Optional[Mapping[str, str]] = None,
    root: str = "/",
    stack: Optional[str] = None,
    path: Optional[Sequence[str]] = None,
) -> Facts:
    """Facts of this machine. What cannot be read is named in ``notes``, once, with the reason.

    Args:
        environ: The environment to look at; this process's when None.
        root: Folder that stands for ``/``; NVML is asked only with ``/``, since it knows no other machine.
        stack: ``keras3``, ``tf_keras`` or ``keras2`` instead of the one that the environment means.
        path: Folders of Python packages to look in, instead of ``sys.path``.

    Raises:
        FactsError: There is no such stack.
    """
    chosen = checked_stack(stack) if stack is not None else None
    environ = os.environ if environ is None else environ
    base = pathlib.Path(root)
    notes: list[str] = []
    packages = read_packages(path, notes)
    reading = read_gpus(environ, notes, nvml_for(base, notes))
    build = read_tensorflow(packages, notes, path)
    notes += visibility_notes(reading.gpus, environ)
    return Facts(
        host=_host(base),
        stack=chosen or find_stack(environ, packages, notes),
        python=platform.python_version(),
        gpus=with_nodes(base, reading.gpus),
        links=reading.links,
        driver=reading.driver,
        cuda_driver=reading.cuda_driver,
        libraries=read_libraries(environ, base, packages, build, notes),
        tensorflow=build,
        horovod=read_horovod(packages, notes, path),
        packages=packages,
        cpu=read_cpu(base, notes),
        numa_nodes=read_nodes(base),
        scheduler=read_scheduler(environ),
        notes=tuple(dict.fromkeys(notes)),
    )


def _host(root: pathlib.Path) -> str:
    try:
        return (root / "proc/sys/kernel/hostname").read_text(encoding="utf-8").strip()
    except OSError:
        return platform.node()
