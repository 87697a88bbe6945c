"""Which GPU each worker gets."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from tfvolta.errors import Problem
from tfvolta.facts.schema import Facts
from tfvolta.facts.visibility import visible_gpus
from tfvolta.launch.tasks import Task


def chosen_gpus(facts: Facts, environ: Mapping[str, str], visible: object = None) -> tuple[int, ...]:
    """Indices of the GPUs that workers may get, in the order in which they are given out.

    Args:
        facts: The machine.
        environ: Of the launcher; its CUDA_VISIBLE_DEVICES restricts the choice.
        visible: ``devices.visible`` of the config: a list counts what the environment leaves.
    """
    left = visible_gpus(facts.gpus, environ.get("CUDA_VISIBLE_DEVICES"))
    if isinstance(visible, (list, tuple)):
        return tuple(left[index] for index in visible if 0 <= index < len(left))
    return left


def assign(tasks: Sequence[Task], gpus: Sequence[int], share: bool) -> dict[str, tuple[int, ...]]:
    """GPUs by the name of a task: one for each that computes, none for the others.

    Args:
        tasks: Of the run.
        gpus: From ``chosen_gpus``; none on a machine without.
        share: Whether several workers may get one GPU.
    """
    computing = [task for task in tasks if task.computes]
    if not gpus or (len(computing) > len(gpus) and not share):
        return {task.name: () for task in tasks}
    given = {task.name: (gpus[number % len(gpus)],) for number, task in enumerate(computing)}
    return {task.name: given.get(task.name, ()) for task in tasks}


def too_few(tasks: Sequence[Task], gpus: Sequence[int], share: bool) -> Optional[Problem]:
    """Why there cannot be so many workers; None where there can, as on a machine without GPUs."""
    computing = [task for task in tasks if task.computes]
    if not gpus or share or len(computing) <= len(gpus):
        return None
    return Problem(
        where="--workers",
        expected=f"at most {len(gpus)}: one worker a GPU (GPU {', '.join(map(str, gpus))})",
        received=str(len(computing)),
        why="a second process on a GPU finds its memory taken, since TensorFlow takes all of it, "
        "and NCCL refuses to join two ranks on one GPU",
        fix=f"--workers {len(gpus)}, or --share-gpus with devices.memory_growth: true to try it all the same, "
        "or hide the GPUs with CUDA_VISIBLE_DEVICES=-1 to train on processors",
    )
