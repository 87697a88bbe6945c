"""Keras 3: what a saved model remembers of its compilation."""

from __future__ import annotations

from typing import Any

from keras.src.saving.serialization_lib import SerializableDict


class CompileArguments(SerializableDict):  # type: ignore[misc]
    """Arguments of ``compile`` as ``model.save`` reads them.

    ``config`` is a copy each time: saving in the HDF5 format pops ``optimizer`` from it, after which a ``.keras`` file
    of the same model would load with a fresh RMSprop (keras/src/legacy/saving/saving_utils.py, ``model_metadata``).

    Attributes:
        arguments: What a saved model remembers.
        asked: What was asked for where Keras made something else of it; gone with the next ``compile``.
    """

    def __init__(self, arguments: dict[str, Any], asked: dict[str, Any]) -> None:
        self.arguments = arguments
        self.asked = asked

    @property
    def config(self) -> dict[str, Any]:
        """The arguments, in a dictionary of their own."""
        return dict(self.arguments)


def refresh(model: Any, **arguments: Any) -> None:
    """Makes a saved model remember other arguments than ``compile`` was called with."""
    recorded = getattr(model, "_compile_config", None)
    if recorded is None:
        return
    known = dict(recorded.config)
    known.update(arguments)
    known.setdefault("optimizer", model.optimizer)  # an HDF5 save popped it
    model._compile_config = CompileArguments(known, getattr(recorded, "asked", {}))


def ask(model: Any, name: str, value: Any) -> None:
    """Notes what was asked for, beside what Keras made of it."""
    if isinstance(getattr(model, "_compile_config", None), CompileArguments):
        model._compile_config.asked[name] = value


def asked(model: Any, name: str) -> Any:
    """What was asked for since the last ``compile``, else what ``compile`` recorded."""
    return getattr(getattr(model, "_compile_config", None), "asked", {}).get(name, argument(model, name))


def argument(model: Any, name: str) -> Any:
    """What a saved model remembers of one argument of ``compile``; None where it was not compiled."""
    recorded = getattr(model, "_compile_config", None)
    return None if recorded is None else recorded.config.get(name)
