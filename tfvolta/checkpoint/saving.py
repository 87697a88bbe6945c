"""Writing a checkpoint: every worker takes part where TensorFlow needs that, and the chief alone leaves files."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

from tfvolta.checkpoint import disk, randomness, state
from tfvolta.checkpoint.manifest import GROUPS, LOSS_SCALE, Manifest, Position, Randomness
from tfvolta.checkpoint.store import Store
from tfvolta.checkpoint.training import Training
from tfvolta.evidence.clock import now

_LARGE_ITERATOR_BYTES = 2**30


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checkpoint that was written.

    Attributes:
        path: Its folder; None where writing failed.
        seconds: What writing took.
        size_bytes: Size of its files; 0 on other workers than the chief.
    """

    path: Optional[str]
    seconds: float
    size_bytes: int = 0


class Writer:
    """Writes the checkpoints of one fit.

    Attributes:
        saved: Every checkpoint that was tried, in order.
    """

    def __init__(self, training: Training, store: Store):
        self._training, self._store = training, store
        self._iterator_refused = False
        self._committed: Optional[Path] = None
        self._said: set[str] = set()
        self.saved: list[Saved] = []

    @property
    def newest(self) -> Optional[str]:
        """Folder of the newest checkpoint that was written."""
        return next((each.path for each in reversed(self.saved) if each.path), None)

    def leave_iterator_out(self) -> None:
        """From now on the state of the data iterator is not saved."""
        self._iterator_refused = True

    def is_readable(self) -> bool:
        """Whether the newest checkpoint has every variable that its manifest names, looked up in TensorFlow's index."""
        if not self._training.peers.is_chief:
            return self.newest is not None
        return self._committed is not None and state.has_all(self._committed)

    def write(self, at: Position, epoch_began: Randomness, epoch_batches: Optional[int], finished: bool) -> bool:
        """Writes a checkpoint; False where the disk refused it, which is said and ends no training.

        Args:
            at: Where training is.
            epoch_began: Random generators at the start of the epoch.
            epoch_batches: Batches of an epoch, where known.
            finished: Whether fit has come to its end.
        """
        started, peers = time.perf_counter(), self._training.peers
        manifest = self._manifest(at, self._states(epoch_began), epoch_batches, finished)
        folder, fault = self._open()
        ready = all(peers.gather_one(int(not fault)))
        if ready and folder is not None:
            fault = self._write_state(folder, at, manifest)
        whole = all(peers.gather_one(int(ready and not fault)))
        if folder is not None and not peers.is_chief:
            self._store.abandon(folder)
        if fault:
            self._say(f"The checkpoint of {at} cannot be written: {fault}. Training goes on; {self._kept()}.")
        own = self._committed if whole else None
        path = str(own or self._store.directory) if whole else None
        self.saved.append(Saved(path, time.perf_counter() - started, _size(own) if own else 0))
        return whole

    def _states(self, epoch_began: Randomness) -> tuple[tuple[Randomness, ...], tuple[Randomness, ...]]:
        """Random generators of every worker, now and when the epoch began."""
        own = [each.model_dump(mode="json") for each in (randomness.capture(), epoch_began)]
        told = [json.loads(data) for data in self._training.peers.gather_bytes(json.dumps(own).encode())]
        present, began = ([Randomness.model_validate(pair[at]) for pair in told] for at in (0, 1))
        return tuple(present), tuple(began)

    def _open(self) -> tuple[Optional[Path], str]:
        """A folder to write into: the checkpoint's on the chief, and one of no use on workers that only take part."""
        try:
            if self._training.peers.is_chief:
                return self._store.begin(), ""
            together = self._training.peers.writes_together
            return Path(tempfile.mkdtemp(prefix="tfvolta-worker-")) if together else None, ""
        except OSError as error:
            return None, disk.reason(error)

    def _manifest(self, at: Position, states: Any, epoch_batches: Optional[int], finished: bool) -> Manifest:
        training = self._training
        return Manifest(
            saved=now(),
            stack=training.bridge.stack,
            epoch=at.epoch,
            batch=at.batch,
            steps=at.steps,
            epochs=training.epochs,
            epoch_batches=epoch_batches,
            finished=finished,
            workers=training.peers.size,
            replicas=int(training.model.distribute_strategy.num_replicas_in_sync),
            optimizer=training.optimizer,
            variables={},
            randomness=states[0],
            epoch_randomness=states[1],
            history=_history(training.model),
        )

    def _write_state(self, folder: Path, at: Position, manifest: Manifest) -> str:
        """Writes the files, and gives the folder its name on the chief; what went wrong, or an empty text."""
        import tensorflow as tf

        groups = self._training.groups(*GROUPS, LOSS_SCALE, *(["metrics"] if at.batch else []))
        try:
            iterator = self._iterator(at)
            try:
                state.write(folder, groups, iterator)
            except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError):
                if iterator is None:
                    raise
                self._iterator_refused, iterator = True, None
                state.write(folder, groups)
            if self._training.peers.is_chief:
                described = {"variables": state.records(groups), "iterator": iterator is not None}
                self._committed = self._store.commit(folder, manifest.model_copy(update=described))
                if iterator is not None:
                    self._weigh_iterator(self._committed, state.size_bytes(groups))
        except OSError as error:
            self._store.abandon(folder)
            return disk.reason(error)
        except tf.errors.OpError as error:
            self._store.abandon(folder)
            return str(error.message).splitlines()[0]
        return ""

    def _iterator(self, at: Position) -> Optional[Any]:
        """The data iterator, where only its state can tell which data are left."""
        from tfvolta.bridge.resuming import is_saveable

        stream = self._training.bridge.fit_stream(self._training.model)
        if self._iterator_refused or self._training.peers.size > 1 or stream is None or stream.kind != "dataset":
            return None
        wanted = stream.whole_fit or (stream.order == "unseeded" and at.batch)
        return stream.iterator if wanted and is_saveable(stream.iterator) else None

    def _weigh_iterator(self, checkpoint: Path, variables_bytes: int) -> None:
        extra = _size(checkpoint) - variables_bytes
        if extra > _LARGE_ITERATOR_BYTES:
            self._say(
                f"The data's shuffle buffers take {extra / 2**30:.1f} GiB of each checkpoint; with "
                "shuffle(n, seed=...) they need not be saved."
            )

    def _kept(self) -> str:
        newest = self._store.checkpoints()
        return f"the newest is {newest[0].name}" if newest else "there is no earlier one"

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._training.warned(text)


def _history(model: Any) -> dict[str, tuple[Any, ...]]:
    """Keras's history so far; what is not finite as text, which JSON can hold."""
    history: Any = getattr(model, "history", None)
    logs = getattr(history, "history", None)
    if not isinstance(logs, dict):
        return {}
    values = {f"log:{name}": tuple(_plain(value) for value in series) for name, series in logs.items()}
    return {"epoch": tuple(int(epoch) for epoch in history.epoch), **values}


def _plain(value: Any) -> Any:
    number = float(value)
    return number if number - number == 0.0 else str(number)


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir())
