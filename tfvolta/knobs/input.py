"""How the data that fit is given are fetched: tf.data's options, prefetch, copies to a device."""

from __future__ import annotations

from typing import Any, ClassVar, Mapping, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.knobs.gpu_threads import data_threads
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

OPTIONS = (
    "private_threads", "max_intra_op_threads", "autotune", "ram_budget_mb", "map_parallelization", "deterministic",
    "slack",
)  # fmt: skip
NOTE = "input"  # in context.saved: why the data of the last fit were left as they are


class InputKnob(Knob):
    """Base of what is put around the data set that a script gives to ``fit``, under ``tfvolta run``.

    A script of its own writes the line in ``line``; the knob then sees it in the data set all the same.
    """

    phase = Phase.FIT
    closes_at = Moment.NEVER
    undoable = False
    line: ClassVar[str] = ""

    def apply(self, value: Any, context: Context) -> None:
        """The data that fit is given carry it."""

    def verify(self, value: Any, context: Context) -> Outcome:
        state = None if context.model is None else context.bridge.input_state(context.model)
        if state is None:
            return Outcome(Status.PENDING, "The data that fit is given will show it.")
        return self.seen(value, state, context)

    def seen(self, value: Any, state: Any, context: Context) -> Outcome:
        """How the setting ended, from ``tfvolta.bridge.input_records.InputState``."""
        raise NotImplementedError

    def missing(self, context: Context, found: str, observed: Mapping[str, Any]) -> Outcome:
        """The outcome where the data set does not have what was asked for."""
        reason = context.saved.get(NOTE)
        said = f"{reason}." if reason else found
        fix = f"remove {self.keys[0]}" if reason else self.line
        return Outcome(Status.NO_EFFECT, said, dict(observed), fix)


class InputOptions(InputKnob):
    """Sets tf.data's options: threads of its own, what is chosen at run time, and whether order is kept.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "input_options"
    keys = tuple(f"input.{name}" for name in OPTIONS)
    techniques = ("K6", "M8")
    changes_results = True
    line = "dataset.with_options(options)"

    def changes_results_by(self, key: str) -> bool:
        return key == "input.deterministic"  # the order of elements; the others choose threads and buffers

    def value(self, config: Any) -> Optional[Any]:
        asked = {name: config.get(f"input.{name}") for name in OPTIONS}
        return {name: value for name, value in asked.items() if value is not None} or None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        said = f"tf.data is told: {', '.join(f'{name}={part}' for name, part in value.items())}."
        if value.get("deterministic") is False:
            said += " Elements come in the order in which they are ready, so that a run cannot be repeated exactly."
        threads = value.get("private_threads")
        if threads is not None and threads > facts.cpu.cores:
            fitting = data_threads(facts.cpu.cores, len(facts.gpus))
            said += f" That is more threads than the {facts.cpu.cores} cores; {fitting} leave GPUs their own."
        return Forecast(Status.APPLIED, said)

    def seen(self, value: Any, state: Any, context: Context) -> Outcome:
        observed = dict(state.options)
        wrong = [name for name, part in value.items() if state.options.get(name) != part]
        if wrong:
            return self.missing(context, f"The data set does not ask tf.data for {', '.join(wrong)}.", observed)
        return Outcome(Status.APPLIED, f"The data set asks tf.data for {', '.join(sorted(value))}.", observed)


class InputPrefetch(InputKnob):
    """Fetches batches ahead of the step that trains on them.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "input_prefetch"
    keys = ("input.prefetch",)
    techniques = ("K6", "M8")
    line = "dataset.prefetch(tf.data.AUTOTUNE)"

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        number = "a number of batches that tf.data chooses" if value == "auto" else f"{value} batches"
        return Forecast(
            Status.APPLIED, f"Fetches {number} ahead; TensorFlow does so by itself unless it is told not to."
        )

    def seen(self, value: Any, state: Any, context: Context) -> Outcome:
        observed = {"prefetch": state.prefetch, "device": state.device}
        asked = -1 if value == "auto" else value
        if state.device or state.prefetch == asked:
            return Outcome(Status.APPLIED, "The data set fetches ahead.", observed)
        return self.missing(context, "The last transformation of the data set is another one.", observed)


class DevicePrefetch(InputKnob):
    """Copies batches to the GPU ahead of the step that trains on them.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "device_prefetch"
    keys = ("input.device_prefetch",)
    techniques = ("K6", "M8", "M15")
    line = "dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0', 2))"

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        kind = config.get("strategy.kind") or "default"
        if not facts.gpus:
            return Forecast(Status.NOT_APPLICABLE, "This machine has no GPU to copy batches to.")
        if kind not in ("default", "horovod"):
            return Forecast(Status.NOT_APPLICABLE, f"A {kind} strategy copies batches to its devices itself.")
        return Forecast(Status.APPLIED, f"{value} batches lie on the GPU before their step begins.")

    def seen(self, value: Any, state: Any, context: Context) -> Outcome:
        observed = {"device": state.device}
        if state.device:
            return Outcome(Status.APPLIED, f"The data set copies batches to {state.device} ahead.", observed)
        why = context.saved.get(self.name) or "the data set ends with something else"
        return self.missing(context, f"Nothing copies batches to a device ahead: {why}.", observed)


class HostMemoryLimit(EnvironmentKnob):
    """Limits the pinned memory of the host, through which batches go to GPUs.

    Binds: at TensorFlow's first pinned allocation, soon after it has made the GPU devices.
    """

    name = "host_memory_limit"
    keys = ("input.host_memory_limit_mb",)
    closes_at = Moment.CONTEXT_INITIALIZED
    move_to = (
        "set TF_GPU_HOST_MEM_LIMIT_IN_MB (or build the strategy from the config) before the first tensor, model or"
        " optimizer is made"
    )
    techniques = ("M8",)
    unverifiable = "TensorFlow reads the variable when it first allocates pinned memory, and nothing returns the limit."

    def variables(self, value: Any) -> dict[str, str]:
        return {"TF_GPU_HOST_MEM_LIMIT_IN_MB": str(value)}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del config
        over = (
            f" That is more than the machine's {facts.cpu.memory_mb} MiB."
            if (facts.cpu.memory_mb or value) < value
            else ""
        )
        return f"TensorFlow pins at most {value} MiB of the host's memory for copies to GPUs.{over}"
