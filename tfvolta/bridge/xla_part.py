"""The part of every bridge that tries a train step with XLA and looks at the running fit's data."""

from __future__ import annotations

from typing import Any, Callable, Optional, Protocol

from tfvolta.bridge import batch_shapes, first_step, graphs, running_fit, xla_limit, xla_trial
from tfvolta.bridge.base import CompileProbe, FitData, XlaTrial
from tfvolta.bridge.input_part import InputPart


class _Layered(Protocol):
    """What the part needs of the bridge that it belongs to."""

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model by path."""


class XlaPart(InputPart):
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def before_first_step(self, model: Any, action: Callable[[Any], None]) -> None:
        """Calls ``action(iterator)`` once, right before the train function runs next."""
        first_step.before_first_step(model, action)

    def try_xla(self: _Layered, model: Any, iterator: Any) -> XlaTrial:
        """Traces the train function for an iterator and lowers its compiled part; nothing runs."""
        data = running_fit.fit_data(model)
        return xla_trial.try_step(model, self.layers(model), iterator, None if data is None else data.batch)

    def probe_compilation(self, model: Any, iterator: Any, limit_seconds: float) -> CompileProbe:
        """Compiles the train step in another process, which is ended at a limit."""
        data = running_fit.fit_data(model)
        return xla_limit.probe(model, iterator, None if data is None else data.batch, limit_seconds)

    def watch_shapes(self, model: Any) -> batch_shapes.ShapeWatch:
        """Sees the shapes of the batches of the running fit from its next iterator on."""
        return batch_shapes.watch(model)

    def test_trace_count(self, model: Any) -> int:
        """How often the function of ``evaluate`` and of validation was traced so far."""
        functions = graphs.outermost(getattr(model, "test_function", None))
        return sum(int(function.experimental_get_tracing_count()) for function in functions)

    def fit_data(self, model: Any) -> Optional[FitData]:
        """Rows and batches of the ``fit`` that is calling a callback; None outside one."""
        return running_fit.fit_data(model)

    def data_policy(self, model: Any) -> Optional[str]:
        """The sharding policy of the data that the running fit was given."""
        return running_fit.data_policy(model)
