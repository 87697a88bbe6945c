"""Calls back when a module has been imported, by whatever statement and from wherever."""

from __future__ import annotations

import functools
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Mapping, Optional, Sequence

Listener = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """An import finder that lets the others find a module and calls a listener once its body has run.

    The module's loader keeps its type: only this one instance's ``exec_module`` is wrapped.
    """

    def __init__(self, listeners: Mapping[str, Listener]):
        """Prepares; ``install`` starts listening.

        Args:
            listeners: What to call for each top-level module name.
        """
        self._listeners = dict(listeners)
        self._searching: set[str] = set()

    def install(self) -> None:
        """Starts listening; a module that is imported already is told at once."""
        sys.meta_path.insert(0, self)
        for name, listener in list(self._listeners.items()):
            module = sys.modules.get(name)
            if module is not None:
                del self._listeners[name]
                listener(module)

    def remove(self) -> None:
        """Stops listening."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """The spec that the other finders give, with its loader's ``exec_module`` wrapped."""
        if fullname not in self._listeners or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = self._find_elsewhere(fullname, path, target)
        finally:
            self._searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            self._wrap(spec.loader, fullname)
        return spec

    def _find_elsewhere(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType]
    ) -> Optional[ModuleSpec]:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def _wrap(self, loader: Any, fullname: str) -> None:
        original = loader.exec_module

        @functools.wraps(original)
        def exec_module(module: ModuleType) -> None:
            original(module)
            listener = self._listeners.pop(fullname, None)
            if listener is not None:
                listener(module)

        loader.exec_module = exec_module
