"""The part of the bridge's interface that concerns compiling a train step, and batches of one shape."""

from __future__ import annotations

from typing import Any, Callable, Optional, Protocol

from tfvolta.bridge.records import CompileProbe, XlaTrial
from tfvolta.footprint.memory import Variables


class Compiling(Protocol):
    """What ``XlaPart``, ``FootprintPart`` and ``PaddingPart`` offer on every Keras."""

    def before_first_step(self, model: Any, action: Callable[[Any], None]) -> None:
        """Calls ``action(iterator)`` once, right before the train function runs next; from ``on_train_begin`` on.

        The action may set jit or reset the functions: the train function that the model has afterwards is run.
        """

    def try_xla(self, model: Any, iterator: Any) -> XlaTrial:
        """Traces the train function for an iterator and lowers its compiled part; nothing runs and no batch is taken.

        The trace is the one that training then uses.
        """

    def probe_compilation(self, model: Any, iterator: Any, limit_seconds: float) -> CompileProbe:
        """Compiles the train step for an iterator in another process, which is ended at a limit."""

    def watch_shapes(self, model: Any) -> Any:
        """A ``tfvolta.bridge.batch_shapes.ShapeWatch`` of the running fit's batches; from ``on_train_begin``."""

    def test_trace_count(self, model: Any) -> int:
        """How often the function of ``evaluate`` and of validation was traced so far; reads no device."""

    def loaded_memory(self, model: Any) -> Any:
        """A ``tfvolta.bridge.loaded_memory.LoadedMemory`` of the step that was compiled; between two steps."""

    def traced_memory(self, model: Any, rows: Optional[int] = None, resident: Optional[int] = None) -> Any:
        """A ``tfvolta.bridge.traced_memory.TracedMemory`` of the running fit's step, from the trace that it runs."""

    def variable_bytes(self, model: Any) -> Variables:
        """Bytes of a model's weights and of its optimiser's variables, so far as they were made."""

    def padding_refusals(self, model: Any) -> list[str]:
        """What of a compiled model sees rows that only fill a batch up, or cannot leave them out, with the reason."""

    def leave_out_filled_rows(self, model: Any) -> bool:
        """Makes a model leave rows of weight minus infinity out of its loss and metrics; False if it does already."""
