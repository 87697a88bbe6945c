"""Runs an unmodified training script under a plan."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from types import ModuleType
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from tfvolta.bridge import bridge_for, bridge_for_stack
from tfvolta.bridge.base import Hooks
from tfvolta.bridge.runtime import before_start, context_initialized
from tfvolta.callbacks.build import session_callbacks
from tfvolta.callbacks.progress import Progress
from tfvolta.errors import TfvoltaError
from tfvolta.phase import Phase
from tfvolta.script.arguments import compile_arguments, fit_arguments
from tfvolta.script.import_hook import AfterImport
from tfvolta.session import Session
from tfvolta.strategy.registry import starts_tensorflow


class ScriptRun:
    """An unmodified script with a plan applied around it.

    The environment is set before the script starts. TensorFlow's import is followed by the devices phase. The
    strategy and the dtype policy come just before the first layer is constructed, so that a script's own device
    settings, which must come before TensorFlow starts, still can. ``compile`` and ``fit`` are wrapped.

    Attributes:
        fits: Calls of ``fit`` so far.
        error: The first error of tfvolta's own that was raised into the script, whether or not the script caught it.
        alter_fit: Changes the arguments of a ``fit`` once the plan has; the same arguments where nobody sets it.
    """

    def __init__(self, session: Session):
        self.session = session
        self.fits = 0
        self.error: Optional[TfvoltaError] = None
        self.alter_fit: Callable[[dict[str, Any]], dict[str, Any]] = lambda arguments: arguments
        self._undo_intercepts: list[Any] = []
        self._hook = AfterImport(
            {
                "tensorflow": self._tensorflow_imported,
                "keras": self._keras_imported,
                "tf_keras": self._tf_keras_imported,
                "horovod.tensorflow.keras": self._horovod_keras_imported,
            }
        )

    def run(self, path: str, arguments: Sequence[str]) -> None:
        """Runs the script as ``python path arguments`` would.

        Args:
            path: The script.
            arguments: Its own command line.

        Raises:
            BaseException: Whatever the script raises, SystemExit included.
        """
        saved_argv, saved_path = sys.argv, list(sys.path)
        self.session.enter(Phase.ENVIRONMENT)
        self._hook.install()
        sys.argv = [path, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        try:
            runpy.run_path(path, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = saved_argv, saved_path
            self._hook.remove()
            for undo in reversed(self._undo_intercepts):
                undo()

    def _tensorflow_imported(self, module: ModuleType) -> None:
        with self._noticing():
            self.session.enter(Phase.DEVICES)
        if starts_tensorflow(self.session.config) and not context_initialized():
            self._undo_intercepts.append(before_start(self._before_tensorflow_starts))

    def _before_tensorflow_starts(self) -> None:
        """Makes a strategy that has to come before everything else, when the script is about to start TensorFlow."""
        with self._noticing():
            self.session.enter(Phase.STRATEGY)

    def _keras_imported(self, module: ModuleType) -> None:
        version = getattr(module, "__version__", "3")
        self._intercept("keras2" if version.startswith("2.") else "keras3")

    def _tf_keras_imported(self, module: ModuleType) -> None:
        self._intercept("tf_keras")

    def _horovod_keras_imported(self, module: ModuleType) -> None:
        if self.session.context.stack == "tf_keras":
            from tfvolta.bridge.horovod_ranks import mend_callbacks

            mend_callbacks(self.session.context.bridge.keras)

    def _intercept(self, stack: str) -> None:
        hooks = Hooks(
            before_layer=lambda: self._before_layer(stack),
            compile_arguments=lambda model, arguments: compile_arguments(self.session, stack, arguments),
            after_compile=self._compiled,
            fit_callbacks=self._fit_callbacks,
            after_fit=lambda model: self._notice(sys.exc_info()[1]),
            fit_arguments=lambda model, arguments: self.alter_fit(
                fit_arguments(self.session, bridge_for(model), model, arguments)
            ),
        )
        self._undo_intercepts.append(bridge_for_stack(stack).intercept(hooks))

    def _before_layer(self, stack: str) -> None:
        session = self.session
        if session.reached is not None and session.reached >= Phase.BUILD:
            return
        with self._noticing():
            # The script may have chosen the other Keras after the plan was made.
            session.serve_stack(stack)
            session.enter(Phase.BUILD)
        strategy = session.context.strategy
        distribute = session.context.tensorflow.distribute
        if strategy is not None and not distribute.has_strategy():
            distribute.experimental_set_strategy(strategy)

    def _compiled(self, model: Any) -> None:
        with self._noticing():
            self.session.attach(model, in_fit=False)

    def _fit_callbacks(self, model: Any, callbacks: Any, arguments: Mapping[str, Any]) -> Any:
        own = session_callbacks(self.session, batch_size=_batch_size(arguments), fits_before=self.fits)
        self.fits += 1
        joined = _joined(own, callbacks)
        joined.sort(key=lambda callback: isinstance(callback, Progress))  # at the end; the others keep their order
        # The list is made just outside of fit, which has not looked at its data yet.
        return bridge_for(model).callback_list(joined, model, deferred=True, **_list_arguments(arguments))

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """Remembers an error that the script's own ``except`` may hide."""
        try:
            yield
        except TfvoltaError as error:
            self._notice(error)
            raise

    def _notice(self, error: Optional[BaseException]) -> None:
        """Keeps the first error of tfvolta's own that was raised into the script."""
        if isinstance(error, TfvoltaError) and self.error is None:
            self.error = error


def _batch_size(arguments: Mapping[str, Any]) -> Optional[int]:
    size = arguments.get("batch_size")
    return size if isinstance(size, int) else None


def _joined(own: list[Any], callbacks: Any) -> list[Any]:
    if callbacks is None:
        return own
    return own + (list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks])


def _list_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of fit that its callback list is made with."""
    return {name: arguments[name] for name in ("verbose", "epochs") if name in arguments}
