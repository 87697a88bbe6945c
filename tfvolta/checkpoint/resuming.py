"""Going on from the newest checkpoint that can be used."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, Mapping, Optional

from tfvolta.bridge.resuming_records import FitStart
from tfvolta.checkpoint import disk, randomness, state
from tfvolta.checkpoint.exchange import from_chief
from tfvolta.checkpoint.manifest import GROUPS, LOSS_SCALE, Manifest, Position, difference
from tfvolta.checkpoint.store import DamagedError, Store, read_manifest
from tfvolta.checkpoint.training import Training
from tfvolta.errors import CheckpointError, Problem

_SHOWN = 3
_ANEW = "move the folder away, or set checkpoint.resume: false to begin anew"


def newest(training: Training, store: Store) -> Optional[Path]:
    """The newest checkpoint that can be used, the same on every worker; None where there is none.

    Raises:
        CheckpointError: There are checkpoints, and all are damaged; or a worker cannot read it. On every worker.
    """
    name = from_chief(training.peers, lambda: _newest_name(training, store))
    if not name:
        return None
    checkpoint: Path = store.directory / name
    told = training.peers.gather_bytes(_fault(checkpoint).encode())
    blind = {rank: fault.decode() for rank, fault in enumerate(told) if fault}
    if blind:
        raise CheckpointError("A worker cannot read the checkpoint.", [_unread(checkpoint, blind)])
    return checkpoint


def _fault(checkpoint: Path) -> str:
    """Why this worker cannot read a checkpoint; empty where it can."""
    try:
        read_manifest(checkpoint)
    except DamagedError as damage:
        return str(damage)
    return ""


def _newest_name(training: Training, store: Store) -> str:
    faults = []
    for checkpoint in store.checkpoints():
        try:
            read_manifest(checkpoint)
            state.check(checkpoint)
        except DamagedError as damage:
            marked = store.mark_damaged(checkpoint)
            faults.append(f"{checkpoint.name}: {damage}")
            training.warned(f"The checkpoint {checkpoint} is damaged ({damage}); it is {marked.name} now.")
        else:
            return checkpoint.name
    if faults:
        problem = Problem(
            where=disk.place(store.directory),
            expected="a checkpoint that can be read",
            received="; ".join(faults),
            why="every checkpoint there is damaged, and beginning anew could be a surprise",
            fix=_ANEW,
        )
        raise CheckpointError("There is no checkpoint to go on from.", [problem])
    return ""


@dataclasses.dataclass
class Resumed:
    """A training that goes on from a checkpoint.

    Attributes:
        checkpoint: Its folder.
        manifest: What it says.
        at: Where training goes on.
        skipped: Batches that the data iterator passed over.
        skip_seconds: What that took.
    """

    checkpoint: Path
    manifest: Manifest
    at: Position
    skipped: int = 0
    skip_seconds: float = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing is left to train."""
        return self.manifest.finished and self.at.batch == 0


def resume(training: Training, checkpoint: Path) -> Resumed:
    """Restores a checkpoint into the running fit, which then goes on behind what was trained.

    Raises:
        CheckpointError: The checkpoint is another model's, or the data are fewer than were trained already.
    """
    manifest = read_manifest(checkpoint)
    resumed = Resumed(checkpoint, manifest, _place(training, manifest))
    built = training.bridge.create_training_variables(training.model)
    if built:
        _restore(training, checkpoint, manifest)
    if not built or resumed.at.batch:
        # What a step of this fit creates, metrics above all, gets its values when the step was traced.
        training.bridge.before_first_step(
            training.model, lambda iterator: _restore_rest(training, checkpoint, manifest, iterator, built)
        )
    training.bridge.start_fit(
        training.model,
        FitStart(
            resumed.at.epoch,
            resumed.at.batch,
            manifest.epoch_batches,
            lambda iterator, batches: _advance(training, resumed, iterator, batches),
        ),
    )
    _note_randomness(training)
    return resumed


def _note_randomness(training: Training) -> None:
    layers = training.bridge.unsaved_random(training.model)
    if layers:
        shown = ", ".join(layers[:_SHOWN]) + (f" and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else "")
        training.noted(
            f"Resumed: {shown} draws other random numbers than a run without interruption, since Keras 2 keeps their "
            "state in kernels that nobody can save. keras.backend.experimental.enable_tf_random_generator() before the "
            "model is made lets them go on."
        )


def _place(training: Training, manifest: Manifest) -> Position:
    """Where to go on; what was trained of an epoch as a share of it where epochs have another length now."""
    at = manifest.position
    if manifest.finished and training.epochs <= manifest.epochs:
        return Position(training.epochs, 0, at.steps)
    length = training.epoch_batches
    if not at.batch or not manifest.epoch_batches or not length or length == manifest.epoch_batches:
        return at
    batch = min(at.batch * length // manifest.epoch_batches, length - 1)
    training.warned(
        f"An epoch had {manifest.epoch_batches} batches when the checkpoint was saved and has {length} now: "
        f"training goes on after batch {batch} of epoch {at.epoch + 1}, at the same share of it."
    )
    return Position(at.epoch, batch, at.steps)


def _restore(training: Training, checkpoint: Path, manifest: Manifest) -> None:
    groups = training.groups(*GROUPS)
    unlike = difference(str(checkpoint), manifest, state.records(groups), training.optimizer)
    if unlike is not None:
        raise CheckpointError("This is another model's checkpoint.", [unlike])
    state.restore(checkpoint, groups)
    scale = training.groups(LOSS_SCALE)
    if scale[LOSS_SCALE] and manifest.variables.get(LOSS_SCALE):
        state.restore(checkpoint, scale)


def _restore_rest(training: Training, checkpoint: Path, manifest: Manifest, iterator: Any, built: bool) -> None:
    training.bridge.trace_step(training.model, iterator)
    if not built:
        _restore(training, checkpoint, manifest)
    metrics = training.groups("metrics")
    saved = manifest.variables.get("metrics", ())
    if saved and [each.shape for each in saved] == [each.shape for each in state.records(metrics)["metrics"]]:
        state.restore(checkpoint, metrics)
    elif saved:
        training.warned("The metrics are not those of the checkpoint: the logs of this epoch cover the rest of it.")


def _advance(training: Training, resumed: Resumed, iterator: Any, batches: int) -> None:
    """Brings the data to where they were, and the random generators with them."""
    from tfvolta.bridge.resuming import is_saveable, skip

    manifest, rank = resumed.manifest, training.peers.rank
    started = time.perf_counter()
    if rank < len(manifest.epoch_randomness):
        randomness.restore(manifest.epoch_randomness[rank])
    has_state = manifest.iterator and is_saveable(iterator)
    if not has_state or not state.restore_iterator(resumed.checkpoint, iterator):
        _warn_of_order(training, batches)
        resumed.skipped = skip(iterator, batches)
        # The number of the last batch is too large where its call of several batches was not full.
        if resumed.skipped <= batches - training.bridge.steps_per_execution(training.model):
            raise CheckpointError("The data end too early.", [_too_few(resumed, batches)])
    resumed.skip_seconds = time.perf_counter() - started
    if rank < len(manifest.randomness):
        randomness.restore(manifest.randomness[rank])


def _warn_of_order(training: Training, batches: int) -> None:
    stream = training.bridge.fit_stream(training.model)
    if batches and stream is not None and stream.order == "unseeded":
        training.warned(
            "The data are shuffled without a seed: the rest of this epoch is another draw, so that some rows come "
            "twice and others not at all. Set run.seed, or give shuffle a seed."
        )


def _unread(checkpoint: Path, blind: Mapping[int, str]) -> Problem:
    return Problem(
        where=str(checkpoint),
        expected="the same files on every worker",
        received="; ".join(f"worker {rank}: {fault}" for rank, fault in blind.items()),
        why="all workers go on from one checkpoint, which each reads for itself",
        fix="set checkpoint.directory to the same absolute path on a shared file system, on every worker",
    )


def _too_few(resumed: Resumed, batches: int) -> Problem:
    return Problem(
        where=str(resumed.checkpoint),
        expected=f"data of at least the {batches} batches that were trained",
        received=f"{resumed.skipped} batches",
        why="training goes on behind what was trained already",
        fix="give fit the data that it had, or set checkpoint.resume: false to begin anew",
    )
