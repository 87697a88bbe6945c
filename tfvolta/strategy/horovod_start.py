"""Initialising Horovod and giving each rank its GPU, before anything starts one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from tfvolta.errors import PlanError, Problem
from tfvolta.strategy.devices import where
from tfvolta.strategy.horovod import START, unusable

if TYPE_CHECKING:
    from tfvolta.config.schema import Config


def start(config: Config) -> Any:
    """Initialises Horovod, once; ``tfvolta.bridge.horovod_ranks.Ranks`` of this process.

    Raises:
        PlanError: Horovod cannot be imported or initialised, or has no other rank under a strict config.
    """
    try:
        from tfvolta.bridge import horovod_ranks

        ranks = horovod_ranks.start()
    except Exception as error:  # absent, of another TensorFlow, or a rendezvous that fails: each has its own class
        raise unusable(error) from error
    if ranks.size < 2 and config.run.strict:
        raise PlanError("Horovod has one rank.", [_one_rank(config)])
    return ranks


def gpu_of(ranks: Any, gpus: list[Any]) -> Optional[int]:
    """Which of the visible GPUs is this rank's; None where there is none.

    A launcher that shows each process one GPU has chosen already.

    Raises:
        PlanError: The machine has fewer GPUs than ranks.
    """
    if not gpus:
        return None
    if len(gpus) == 1 and ranks.local_rank > 0:
        return 0
    if ranks.local_rank >= len(gpus):
        raise PlanError("There is no GPU for this rank.", [_too_few(ranks, len(gpus))])
    return int(ranks.local_rank)


def _one_rank(config: Config) -> Problem:
    return Problem(
        where=where(config, "strategy.kind"),
        expected="two ranks or more",
        received="hvd.size() is 1",
        why="this process was started by itself, or Horovod lacks what its launcher joins processes with "
        "(Gloo for horovodrun --gloo, MPI for mpirun)",
        fix=f"{START}; run.strict: false trains alone",
    )


def _too_few(ranks: Any, gpus: int) -> Problem:
    return Problem(
        where=f"rank {ranks.rank}",
        expected=f"{ranks.local_size} GPUs for {ranks.local_size} ranks on this machine",
        received=f"{gpus} visible",
        why="two ranks on one GPU share its memory, and NCCL refuses it",
        fix=f"start {gpus} ranks on this machine, or show it more GPUs (devices.visible, CUDA_VISIBLE_DEVICES)",
    )
