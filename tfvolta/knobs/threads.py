"""TensorFlow's CPU thread pools."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


class ThreadsKnob(Knob):
    """Base of the two pools.

    TensorFlow raises even when the same value is set again after the start, so ``apply`` looks first.
    """

    phase = Phase.DEVICES
    closes_at = Moment.CONTEXT_INITIALIZED
    move_to = "call tfvolta.build_strategy(config) before the first tensor, model or optimizer is made"
    techniques = ("K6",)
    variable: ClassVar[str] = ""
    purpose: ClassVar[str] = ""

    @abc.abstractmethod
    def _read(self, threading: Any) -> int:
        """The pool's size as tf.config has it; 0 where TensorFlow chooses."""

    @abc.abstractmethod
    def _write(self, threading: Any, value: int) -> None:
        """Sets the pool's size."""

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        cores = facts.cpu.cores
        if value == 0:
            return Forecast(
                Status.APPLIED, f"TensorFlow chooses the threads {self.purpose}: one per core, {cores} here."
            )
        over = f" That is more than the {cores} cores." if value > cores else ""
        return Forecast(Status.APPLIED, f"{value} threads {self.purpose}.{over}")

    def apply(self, value: Any, context: Context) -> None:
        threading = context.tensorflow.config.threading
        former = self._read(threading)
        context.saved.setdefault(self.name, former)
        if former != value:
            self._write(threading, value)

    def verify(self, value: Any, context: Context) -> Outcome:
        seen = self._read(context.tensorflow.config.threading)
        observed: dict[str, Any] = {"threads": seen}
        if seen != value:
            return Outcome(
                Status.NO_EFFECT, f"tf.config has {seen} threads {self.purpose} instead of {value}.", observed
            )
        variable = context.environ.get(self.variable)
        if value == 0 and variable:
            return Outcome(
                Status.NO_EFFECT,
                f"0 lets TensorFlow choose, and it then takes {self.variable}={variable}; unset it.",
                observed,
            )
        return Outcome(Status.APPLIED, f"{value or 'As many as TensorFlow chooses'} threads {self.purpose}.", observed)

    def undo(self, context: Context) -> bool:
        former = context.saved.pop(self.name, None)
        if former is None or context.closed(self.closes_at) is not None:
            return False
        self._write(context.tensorflow.config.threading, former)
        return True


class InterOpThreads(ThreadsKnob):
    """Sets how many operations may run side by side on the CPU.

    Binds: when the eager context creates its thread pools.
    """

    name = "inter_op_threads"
    keys = ("devices.inter_op_threads",)
    variable = "TF_NUM_INTEROP_THREADS"
    purpose = "across operations"

    def _read(self, threading: Any) -> int:
        return int(threading.get_inter_op_parallelism_threads())

    def _write(self, threading: Any, value: int) -> None:
        threading.set_inter_op_parallelism_threads(value)

    def verify(self, value: Any, context: Context) -> Outcome:
        from tfvolta.bridge.runtime import thread_names

        outcome = super().verify(value, context)
        pool = thread_names().count("tf_Compute")  # named so since TensorFlow 2.16 or so; absent on older ones
        if value == 0 or pool == 0 or outcome.status is not Status.APPLIED:
            return outcome
        observed = {**outcome.observed, "tf_Compute": pool}
        if pool < value:
            return Outcome(Status.NO_EFFECT, f"The running pool has {pool} threads instead of {value}.", observed)
        return Outcome(Status.APPLIED, outcome.message, observed)


class IntraOpThreads(ThreadsKnob):
    """Sets how many threads one operation may use on the CPU.

    Binds: when the eager context creates its thread pools.
    """

    name = "intra_op_threads"
    keys = ("devices.intra_op_threads",)
    variable = "TF_NUM_INTRAOP_THREADS"
    purpose = "inside an operation"

    def _read(self, threading: Any) -> int:
        return int(threading.get_intra_op_parallelism_threads())

    def _write(self, threading: Any, value: int) -> None:
        threading.set_intra_op_parallelism_threads(value)
