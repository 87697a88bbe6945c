"""Keras 3: what callbacks write on workers other than the chief goes to a folder of their own, as in Keras 2.

All workers run the same callbacks, and with the same paths: several processes would write one file at a time. The
others write too and not nothing, because saving may read variables that are added up over the workers.

Source: keras/src/callbacks of Keras 3.15; ``distributed_file_utils.py`` of Keras 2.15.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import weakref
from typing import Any, Callable

import keras

from tfvolta.bridge import workers

_PATHS = {"ModelCheckpoint": "filepath", "CSVLogger": "filename", "TensorBoard": "log_dir"}
# What a backup is read from is the chief's, what it is written to is the worker's own.
_BACKUP_PATHS = (
    "backup_dir",
    "_weights_path",
    "_training_metadata_path",
    "_prev_weights_path",
    "_prev_training_metadata_path",
)
_ASKED = "_tfvolta_paths"


def install() -> None:
    """Corrects the classes of Keras's callbacks; under a strategy of one process they do what they did."""
    for name, attribute in _PATHS.items():
        _before(getattr(keras.callbacks, name), "set_model", functools.partial(_redirect, attributes=(attribute,)))
    _before(keras.callbacks.BackupAndRestore, "on_train_begin", _restore_paths)
    _after(keras.callbacks.BackupAndRestore, "on_train_begin", functools.partial(_redirect, attributes=_BACKUP_PATHS))


def _before(owner: Any, name: str, action: Callable[..., None]) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(self: Any, *arguments: Any, **keywords: Any) -> Any:
        action(self, *arguments)
        return method(self, *arguments, **keywords)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, action: Callable[..., None]) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(self: Any, *arguments: Any, **keywords: Any) -> Any:
        result = method(self, *arguments, **keywords)
        action(self)
        return result

    setattr(owner, name, wrapped)


def _redirect(callback: Any, model: Any = None, attributes: tuple[str, ...] = ()) -> None:
    """Gives a callback of a worker other than the chief paths of its own; those that were asked for are kept."""
    strategy = (model or callback.model).distribute_strategy
    if not workers.spans_workers(strategy) or workers.is_chief(strategy):
        _restore_paths(callback)
        return
    if _ASKED in callback.__dict__:
        return
    folder = tempfile.mkdtemp(prefix="tfvolta_worker_")
    weakref.finalize(callback, shutil.rmtree, folder, ignore_errors=True)
    callback.__dict__[_ASKED] = {name: getattr(callback, name) for name in attributes}
    for name, path in callback.__dict__[_ASKED].items():
        setattr(callback, name, os.path.join(folder, os.path.basename(os.fspath(path).rstrip("/"))))


def _restore_paths(callback: Any, *arguments: Any) -> None:
    """Gives a callback back the paths that it was asked to use."""
    for name, path in callback.__dict__.pop(_ASKED, {}).items():
        setattr(callback, name, path)
