"""The traced functions of a Keras 2 model: forgetting them, looking into them, and compiling them with XLA."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge import all_reduce, graphs, keras2_call_count, keras2_compiled_rows, running_fit
from tfvolta.bridge.base import GraphSummary, JitState
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_refusals import xla_obstacles
from tfvolta.errors import BridgeError, Problem

_KINDS = ("train", "test", "predict")
_MENDED = "_tfvolta_waits_for_batches"


def reset_functions(model: Any) -> None:
    """Forgets the traced functions; from any hook, also while ``fit`` runs.

    ``fit`` makes its train function before the first hook and calls ``model.train_function`` each step, so one that
    exists is replaced by a fresh one and never by None.
    """
    existing = [kind for kind in _KINDS if getattr(model, f"{kind}_function", None) is not None]
    _forget(model)
    _remake(model, existing)


def _forget(model: Any) -> None:
    for kind in _KINDS:
        setattr(model, f"{kind}_function", None)
    model.train_tf_function = None


def _remake(model: Any, kinds: list[str]) -> None:
    for kind in kinds:
        made = getattr(model, f"make_{kind}_function")(force=True)
        if getattr(model, f"{kind}_function") is None:  # an overriding method that only returns the function
            setattr(model, f"{kind}_function", made)


def _after_its_batch(model: Any, train_step: Any) -> Any:
    """A train step whose operations all wait for the batch, unless XLA makes one operation of it."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def waiting_step(data: Any) -> Any:
        tensors = [part for part in tf.nest.flatten(data, expand_composites=True) if tf.is_tensor(part)]
        with tf.control_dependencies([] if model.run_eagerly or model.jit_compile else tensors):
            return train_step(data)

    waiting_step.__func__ = getattr(train_step, "__func__", None)  # whose it is, as of a bound method
    return waiting_step


class FunctionPart:
    """The part of the bridge that concerns the train function.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def reset_functions(self, model: Any) -> None:
        """Forgets the traced train, test and predict functions, so that the next call traces anew."""
        reset_functions(model)

    def is_traced(self, model: Any) -> bool:
        """Whether the train function exists and was traced."""
        return graphs.is_traced(model.train_function)

    def trace_count(self, model: Any) -> int:
        """How often the train function was traced so far; 0 before a trace and when run eagerly. Reads no device."""
        return sum(int(traced.experimental_get_tracing_count()) for traced in graphs.outermost(model.train_function))

    def is_compiled(self, model: Any) -> bool:
        """Whether ``compile`` was called."""
        return bool(model._is_compiled)

    def train_graph(self, model: Any) -> Optional[GraphSummary]:
        """What the traced train functions contain; None before a trace or when run eagerly."""
        return graphs.summarize(model)

    def set_jit(self, model: Any, value: bool) -> None:
        """Sets per-model XLA compilation so that the next train step has it, from any callback hook.

        Raises:
            BridgeError: The value is no bool (Keras 2 takes any string for true), or the model runs eagerly.
        """
        if not isinstance(value, bool):
            raise BridgeError("Not a value for jit_compile.", [_not_a_bool(value)])
        if value and (model.run_eagerly or model.dynamic):
            raise BridgeError("An eager model cannot be compiled by XLA.", [_eager(model)])
        existing = [kind for kind in _KINDS if getattr(model, f"{kind}_function", None) is not None]
        model.jit_compile = value  # forgets the functions where the value changes, which would end a running fit
        _remake(model, [kind for kind in existing if getattr(model, f"{kind}_function") is None])

    def jit(self, model: Any) -> JitState:
        """What the next or present train step gets."""
        requested = model.jit_compile
        effective = bool(requested) and not model.run_eagerly and not model.dynamic
        reasons = []
        if bool(requested) != effective:
            reasons.append("the model runs eagerly, so there is no graph to compile")
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if getattr(optimizer, "jit_compile", False):
            reasons.append(
                f"{type(optimizer).__name__} compiles its weight update with XLA on its own "
                "(jit_compile=True, the default of Keras 2's optimisers where a GPU is visible)"
            )
        return JitState(requested=requested, effective=effective, reason="; ".join(reasons))

    def xla_obstacles(self, model: Any) -> list[str]:
        """Layers for which XLA compilation is known to fail, hang or be switched off, each with the reason."""
        return xla_obstacles(self.package, model)

    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        """Sets batches per call of the train function; outside fit only, because fit's iterator counts in them."""
        if self.steps_per_execution(model) != steps:
            model.steps_per_execution = steps
            reset_functions(model)

    def compile_update(self, model: Any, wanted: bool) -> str:
        """Why Keras 2 needs no help: its optimisers compile the update of each weight on a GPU."""
        return "optimisers of this Keras compile their updates by themselves where a GPU is visible"

    def mend(self, model: Any) -> bool:
        """Corrects what Keras's train function does wrongly or slowly; False where nothing is to do.

        - The optimiser's count needs nothing of the batch, so it goes on by one where data of unknown size run out: the
          step is made to wait for its batch.
        - Between the steps of a call the host waits for the device (``keras2_call_count``).
        - A step that XLA compiles loops over the tokens of an embedding (``keras2_compiled_rows``).
        """
        all_reduce.install(model.distribute_strategy)
        changed = keras2_call_count.install(model)
        if model.optimizer is not None:
            changed |= keras2_compiled_rows.install(self.package, model.optimizer) and bool(model.jit_compile)
        if _MENDED not in model.__dict__ and running_fit.runs_out(model):
            model.__dict__[_MENDED] = changed = True
            model.__dict__["train_step"] = _after_its_batch(model, model.train_step)
        if not changed:
            return False
        if graphs.is_traced(model.train_function):
            reset_functions(model)
        return True

    def steps_per_execution(self, model: Any) -> int:
        """Batches per call of the train function."""
        return 1 if model._steps_per_execution is None else int(model._steps_per_execution.numpy())


def _not_a_bool(value: Any) -> Problem:
    return Problem(
        where="jit_compile",
        expected="True or False",
        received=repr(value),
        why="Keras 2 takes every non-empty string for true, 'auto' too",
        fix="decide first: bridge.set_jit(model, True) or bridge.set_jit(model, False)",
    )


def _eager(model: Any) -> Problem:
    return Problem(
        where=f"{model.name}: jit_compile",
        expected="a model that runs as a graph",
        received="run_eagerly=True" if model.run_eagerly else "a dynamic layer",
        why="XLA compiles graphs; there is none in eager mode",
        fix="compile(..., run_eagerly=False)",
    )
