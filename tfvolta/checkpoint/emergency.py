"""The state of a training that failed, for a fit that saves no checkpoints of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from tfvolta.checkpoint.manifest import Position, Randomness
from tfvolta.checkpoint.saving import Writer
from tfvolta.checkpoint.store import Store
from tfvolta.checkpoint.training import Training


def save_state(training: Training, directory: Path, at: Position, epoch_began: Randomness) -> Optional[str]:
    """Writes a checkpoint that a later run goes on from with ``checkpoint.directory`` set to its folder's parent.

    Args:
        training: The model and who trains it.
        directory: Folder of the fit's checkpoints, such as ``runs/<run>/out_of_memory/fit-00``.
        at: Where the training was after its last whole batch.
        epoch_began: Random generators at the start of the epoch.

    Returns:
        The checkpoint; None where the disk refused it, which was said.
    """
    store = Store(directory, keep=1)
    store.set_aside()  # what an earlier failure left there
    writer = Writer(training, store)
    writer.leave_iterator_out()
    writer.write(at, epoch_began, training.epoch_batches, finished=False)
    return writer.newest
