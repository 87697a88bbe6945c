"""What knobs may touch while a plan is applied to the live process."""

from __future__ import annotations

import importlib
import os
import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any, Callable, Optional

from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.runtime import closed
from tfvolta.config.schema import Config
from tfvolta.contradictions import note
from tfvolta.facts.schema import Facts
from tfvolta.phase import Closure, Moment


class JournaledEnviron(MutableMapping[str, str]):
    """The process environment, with a record of what tfvolta set in it."""

    def __init__(self, environ: MutableMapping[str, str]):
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        return self._environ[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._environ[name] = value
        note(self._environ, name, value)

    def __delitem__(self, name: str) -> None:
        del self._environ[name]
        note(self._environ, name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


def _no_model() -> None:
    """Stands for a model that is not there."""


class LiveContext:
    """``tfvolta.knobs.base.Context`` of this process.

    Attributes:
        in_fit: Whether the present call comes from inside ``model.fit``, whose data iterator exists by then.
        strategy: The strategy that the plan built, or None.
    """

    def __init__(self, config: Config, facts: Facts, environ: Optional[MutableMapping[str, str]] = None):
        self.config = config
        self.facts = facts
        self.stack: str = facts.stack
        self.environ: MutableMapping[str, str] = JournaledEnviron(os.environ if environ is None else environ)
        self._model: Callable[[], Any] = _no_model
        self.saved: dict[str, Any] = {}
        self.in_fit = False
        self.strategy: Optional[Any] = None

    @property
    def model(self) -> Optional[Any]:
        """The model being trained; held weakly, so that a session keeps no model alive."""
        return self._model()

    @model.setter
    def model(self, model: Optional[Any]) -> None:
        self._model = _no_model if model is None else weakref.ref(model)

    @property
    def tensorflow(self) -> Any:
        """The tensorflow module, imported now if it was not."""
        return importlib.import_module("tensorflow")

    @property
    def bridge(self) -> Any:
        """The bridge of this stack's Keras."""
        return bridge_for_stack(self.stack)

    def closed(self, moment: Moment) -> Optional[Closure]:
        """What closed a moment in this process, or None while it is open."""
        if moment is Moment.FIT_STARTED:
            return Closure(moment, "the callback was called from inside fit") if self.in_fit else None
        return closed(moment, self.model)
