"""One rank that speaks and writes: the others train in silence."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Callback
from tfvolta.callbacks.ranks import others_of
from tfvolta.errors import AuditWarning

if TYPE_CHECKING:
    from tfvolta.session import Session

# Keras's callbacks that print, or write files that every rank would write alike, over those of rank 0.
PRINTING = frozenset({"ProgbarLogger"})
WRITING = frozenset({"ModelCheckpoint", "CSVLogger", "TensorBoard", "RemoteMonitor"})


_BACKUP = (
    "BackupAndRestore runs on every rank, and ranks that share its folder write over one another; give each rank a "
    "folder of its own (backup_dir=f'backup_{hvd.rank()}'), or use the section checkpoint, which saves once for all"
)


class FirstRankOutput(Callback):
    """Takes callbacks that print or write files out of the list on every rank but the first.

    They are found by class, subclasses included: the progress bar, ModelCheckpoint, CSVLogger, TensorBoard and
    RemoteMonitor. A callback of the script's own that writes runs on every rank as it is. BackupAndRestore restores on
    every rank, so it stays, with a warning: its files are those of all ranks at once. Put this one first in the list.

    Args:
        session: Takes what was left out into the evidence of a run.
        inside: The callback in fit's list that calls this one; None where it is in the list itself.

    Attributes:
        removed: Names of the classes that do not run on this rank.
    """

    def __init__(self, session: Optional[Session] = None, inside: Optional[Callback] = None):
        super().__init__()
        self._session = session
        self._listed = inside or self
        self.removed: list[str] = []

    def set_model(self, model: Any) -> None:
        """Takes the others out before they are given the model."""
        super().set_model(model)
        peers = others_of(model)
        if peers is None:
            return
        from tfvolta.bridge.callback_lists import list_of, remove_others

        if peers.is_chief:
            if any("BackupAndRestore" in _names(each) for each in list_of(self._listed) or ()):
                warnings.warn(_BACKUP, AuditWarning, stacklevel=3)
            return
        removed = remove_others(self._listed, lambda callback: bool(_names(callback) & (PRINTING | WRITING)))
        writing = sorted({next(iter(_names(each) & WRITING)) for each in removed if _names(each) & WRITING})
        if writing and writing != self.removed:
            text = f"on rank 0 only, and not on rank {peers.rank}: {', '.join(writing)}"
            print(f"tfvolta: {text}", file=sys.stderr, flush=True)
            if self._session is not None:
                self._session.measured("first_rank_output", {"rank": peers.rank, "left_out": writing})
        self.removed = writing


def _names(callback: Any) -> set[str]:
    return {cls.__name__ for cls in type(callback).__mro__}
