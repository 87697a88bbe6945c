"""What ``make test`` runs, in which environment and in which order."""

from __future__ import annotations

import shutil
from typing import NamedTuple, Sequence

STACKS = ("keras3", "tf_keras", "keras2")
# Into how many parts a folder is divided, so that lanes end together; each part starts TensorFlow once more. tf_keras
# runs a few tests of a folder (tests/slow.py), and those in one part.
SHARES = {"tensorflow": 4, "processes": 3, "gpu": 1}


class Stage(NamedTuple):
    """One command of the test run.

    Attributes:
        name: Shown, and the name of its log.
        environment: Virtual environment in which it runs.
        command: Arguments of that environment's Python.
        variables: Added to the process environment.
        counts: Whether it is pytest, which says how many tests it ran; otherwise the stage counts as one.
        with_horovod: Whether it waits until Horovod is built for its environment.
    """

    name: str
    environment: str
    command: tuple[str, ...]
    variables: dict[str, str]
    counts: bool = True
    with_horovod: bool = False


def fast_stages() -> list[Stage]:
    """Checks that take seconds and need no TensorFlow; the environment ``pure`` has none."""
    return [
        Stage("lint", "pure", ("-m", "ruff", "check", "."), {}, counts=False),
        Stage("types", "pure", ("-m", "mypy"), {}, counts=False),
        Stage("pure", "pure", ("-m", "pytest", "tests/pure"), {}),
    ]


def has_gpu() -> bool:
    """Whether this machine has NVIDIA's driver; without it tests/gpu would only start TensorFlow to skip everything."""
    return shutil.which("nvidia-smi") is not None


def environment_of(stack: str) -> str:
    """The virtual environment of a stack; keras3 and tf_keras share one."""
    return "keras2" if stack == "keras2" else "keras3"


def _folder_stages(stack: str, folder: str) -> list[Stage]:
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if stack == "tf_keras":
        variables["TF_USE_LEGACY_KERAS"] = "1"  # as a user chooses it
    shares = 1 if stack == "tf_keras" else SHARES[folder]
    found = []
    for number in range(1, shares + 1):
        name, command = f"{stack} {folder}", ["-m", "pytest", f"tests/{folder}"]
        if shares > 1:
            name, command = f"{name} {number} of {shares}", [*command, f"--share={number}/{shares}"]
        found.append(Stage(name, environment_of(stack), tuple(command), variables, True, folder == "processes"))
    return found


def stack_stages(stacks: Sequence[str]) -> list[Stage]:
    """The tests of some stacks: one folder after another, so that Horovod is built before it is needed.

    Within a folder tf_keras comes last, whose stages are the shortest.
    """
    order = sorted(stacks, key=lambda stack: stack == "tf_keras")
    folders = ["tensorflow", "processes", *(["gpu"] if has_gpu() else [])]
    return [stage for folder in folders for stack in order for stage in _folder_stages(stack, folder)]
