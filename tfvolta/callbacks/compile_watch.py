"""The calls of one fit in which its functions were traced or compiled."""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import Any, Callable, MutableMapping, Optional

from tfvolta.bridge.base import Bridge
from tfvolta.callbacks.compilation import Compilation, alarm

# A call that is slower than this many of the fastest one, and than a compilation is short, is looked at.
_SLOW = 5.0
_COMPILE_SECONDS = 0.05
# Combinations of shapes for which a model's train function, as it was traced last, has been compiled: XLA keeps them
# from fit to fit.
_compiled: MutableMapping[Any, set[Any]] = weakref.WeakKeyDictionary()


class CompileWatch:
    """Looks at the calls of the train and test function; to be made when training begins, before the first iterator.

    Args:
        bridge: The bridge of the model's Keras.
        model: The model that is trained.
        limit: Compilations of the train function that are taken as normal.
        tell: Takes the one alarm of a fit.

    Attributes:
        entries: What was traced or compiled, in order.
        shapes: The combinations of shapes that came; None where the step is not compiled.
        epoch: Number of the running epoch.
        fastest: Seconds of the fastest call in which nothing was noted; None before one.
    """

    def __init__(self, bridge: Bridge, model: Any, limit: int, tell: Callable[[str], None]):
        self.entries: list[Compilation] = []
        self.shapes: Any = bridge.watch_shapes(model) if bridge.jit(model).effective else None
        self.epoch = 0
        self.fastest: Optional[float] = None
        self._bridge, self._model = bridge, model
        self._limit = limit
        self._tell: Optional[Callable[[str], None]] = tell
        self._traces, self._test_traces = bridge.trace_count(model), bridge.test_trace_count(model)
        self._per_call = bridge.steps_per_execution(model)
        self._calls = self._step = 0
        self._began = 0.0

    @property
    def compiled(self) -> list[Compilation]:
        """Compilations of the train function."""
        return [entry for entry in self.entries if entry.function == "train" and entry.compiled]

    @property
    def shapes_seen(self) -> bool:
        """Whether the shapes of the batches are noted as they come."""
        return self.shapes is not None and not self.shapes.reason

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins."""
        self.epoch = epoch
        if self.shapes is not None:
            self.shapes.begin_epoch()

    def begin(self, step: int) -> None:
        """A call begins."""
        self._step = step
        self._began = perf_counter()

    def end(self) -> None:
        """A call of the train function ended."""
        seconds = perf_counter() - self._began
        self._calls += 1
        new = self.shapes is not None and self.shapes.advance(self._per_call, self._step)
        limit = _COMPILE_SECONDS if self.fastest is None else max(_COMPILE_SECONDS, _SLOW * self.fastest)
        if self._calls == 1 or new or seconds > limit:
            self._look(seconds)
        elif self.fastest is None or seconds < self.fastest:
            self.fastest = seconds

    def end_test(self) -> None:
        """A call of the test function ended."""
        traces = self._bridge.test_trace_count(self._model)
        if traces != self._test_traces:
            self._test_traces = traces
            seconds, jit = perf_counter() - self._began, self._bridge.jit(self._model).effective
            self.entries.append(Compilation("validation", self.epoch, self._step, seconds, True, jit, "trace"))

    def _look(self, seconds: float) -> None:
        traces, jit = self._bridge.trace_count(self._model), self._bridge.jit(self._model).effective
        traced, self._traces = traces != self._traces, traces
        shapes = self._new_shapes(traced)
        by_time = not self.shapes_seen and self._calls > 1
        if not traced and not (jit and (shapes or by_time)):
            return
        seen_by = "trace" if traced else "shapes" if shapes else "time"
        self.entries.append(Compilation("train", self.epoch, self._step, seconds, traced, jit, seen_by, shapes))
        if jit:
            self._warn()

    def _new_shapes(self, traced: bool) -> tuple[Any, ...]:
        """Combinations for which the train function was not compiled before, in this fit or an earlier one."""
        came = self.shapes.take() if self.shapes is not None else []
        unknown = not traced and self._model not in _compiled  # trained before, and nobody looked
        known = _compiled.setdefault(self._model, set())
        if traced:
            known.clear()
        new = [shapes for shapes in came if tuple(shapes.items()) not in known]
        known.update(tuple(shapes.items()) for shapes in new)
        return () if unknown else tuple(new)

    def _warn(self) -> None:
        """Tells once of a compilation after the first epoch, or of one too many."""
        late = self.epoch > self.compiled[0].epoch and not self.entries[-1].traced
        if self._tell is None or not (late or sum(entry.count for entry in self.compiled) > self._limit):
            return
        tell, self._tell = self._tell, None
        tell(alarm(self.compiled, self.shapes.seen if self.shapes_seen else [], self.fastest))
