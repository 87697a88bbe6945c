"""Fake machines for tests of facts: a folder that stands for the root, and an nvidia-smi that is a shell script."""

from __future__ import annotations

import pathlib
import textwrap


def write(root: pathlib.Path, name: str, text: str) -> pathlib.Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def machine(root: pathlib.Path) -> pathlib.Path:
    write(root, "proc/cpuinfo", "".join(f"processor\t: {i}\nmodel name\t: Xeon E5-2698 v4\n\n" for i in range(4)))
    write(root, "proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    write(root, "proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-1,3\n")
    write(root, "proc/sys/kernel/hostname", "node7\n")
    return root


def smi(folder: pathlib.Path, script: str) -> dict[str, str]:
    tool = write(folder, "bin/nvidia-smi", "#!/bin/sh\n" + textwrap.dedent(script))
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:/usr/bin:/bin"}
