"""Keras 3: an optimiser whose replicas add up their gradients first, once, and do the rest with the sum.

Keras 3.15 goes the other way round, and four things of it are wrong or impossible with several replicas:

- ``clipnorm``, ``global_clipnorm`` and ``clipvalue`` cut each replica's share before the shares are added up, so that
  the weights are not those of one process on the same batch. Here the sum is cut.
- A loss-scale wrapper looks at shares too (``tfvolta.bridge.keras3_guard``); a sum is the same everywhere, so that all
  replicas, those of other workers included, decide alike without another exchange.
- ``iterations`` belongs to the first replica alone, which in a step that XLA compiles cannot be asked: "merge_call
  called while defining a new graph". Here each replica counts its own copy; all of them count the same.
- ``ema_overwrite_frequency`` merges replicas inside a condition, with the same error. Here each replica copies its own.

The corrections sit on the instance, as the guard does and for the same reason, and do nothing with one replica.

Source: keras/src/backend/tensorflow/optimizer.py and keras/src/optimizers/base_optimizer.py, Keras 3.15.
"""

from __future__ import annotations

import contextlib
import threading
import types
from typing import Any, Callable, Iterator, Optional

import tensorflow as tf
from keras.src import backend
from keras.src.backend.tensorflow.optimizer import TFOptimizer

Reducer = Callable[[list[Any]], list[Any]]

_KEY = "_tfvolta_reducer"
_state = threading.local()  # each replica's code is traced in a thread of its own


def install(optimizer: Any) -> bool:
    """Corrects an optimiser, or the one inside a wrapper; False where it was corrected already, or is not Keras's."""
    optimizer = innermost(optimizer)
    if not isinstance(optimizer, TFOptimizer) or _KEY in optimizer.__dict__:
        return False
    optimizer.__dict__[_KEY] = None
    for method in (_backend_apply_gradients, _all_reduce_sum_gradients, _overwrite_model_variables_with_average_value):
        optimizer.__dict__[method.__name__] = types.MethodType(method, optimizer)
    optimizer._iterations.__dict__["_direct_assign"] = types.MethodType(_assign_own_copy, optimizer._iterations)
    return True


def is_installed(optimizer: Any) -> bool:
    """Whether an optimiser, or the one inside a wrapper, is corrected."""
    return _KEY in innermost(optimizer).__dict__


def set_reducer(optimizer: Any, reducer: Optional[Reducer]) -> None:
    """Puts something else in the place of the strategy's all-reduce.

    Args:
        optimizer: The optimiser, or a wrapper around it; it is corrected if need be.
        reducer: Called once a step, in replica context and never inside a condition, with one replica too. It gets
            the gradients of this replica without any None and returns their sums over all replicas in the same order.
            None takes the strategy's all-reduce again.
    """
    install(optimizer)
    innermost(optimizer).__dict__[_KEY] = reducer


def innermost(optimizer: Any) -> Any:
    """The optimiser inside wrappers."""
    while getattr(optimizer, "inner_optimizer", None) is not None:
        optimizer = optimizer.inner_optimizer
    return optimizer


def several() -> bool:
    """Whether the present code is one of several replicas."""
    context = tf.distribute.get_replica_context()
    return context is not None and int(context.num_replicas_in_sync) > 1


def reduced(optimizer: Any, gradients: list[Any], variables: Optional[list[Any]] = None) -> list[Any]:
    """The gradients added up over all replicas, None kept; to be called once a step.

    Args:
        optimizer: The optimiser that will apply them, or a wrapper around it.
        gradients: Those of this replica.
        variables: Their variables, where some may take their gradient for their new value (float8 scales); these are
            left as they are.
    """
    optimizer = innermost(optimizer)
    taken = [gradient is not None for gradient in gradients]
    for number, variable in enumerate(variables or ()):
        taken[number] &= not optimizer._overwrite_variable_with_gradient(variable)
    present = [gradient for gradient, take in zip(gradients, taken) if take]
    reducer = optimizer.__dict__.get(_KEY)
    if reducer is not None:
        results = reducer(present)
    elif several() and present:
        results = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, present)
    else:
        return gradients
    sums = iter(results)
    return [next(sums) if take else gradient for gradient, take in zip(gradients, taken)]


@contextlib.contextmanager
def gradients_are_sums() -> Iterator[None]:
    """Inside, optimisers take the gradients that they are given for sums over all replicas."""
    former = getattr(_state, "sums", False)
    _state.sums = True
    try:
        yield
    finally:
        _state.sums = former


def _backend_apply_gradients(self: Any, grads: Any, trainable_variables: Any) -> None:
    """Adds up the replicas' gradients, and lets Keras clip, decay and update with the sum."""
    grads = list(grads) if getattr(_state, "sums", False) else reduced(self, list(grads))
    with gradients_are_sums():
        type(self)._backend_apply_gradients(self, grads, trainable_variables)


def _all_reduce_sum_gradients(self: Any, grads_and_vars: Any) -> Any:
    """What Keras calls just before the update: by then the gradients have been added up."""
    return (
        grads_and_vars if getattr(_state, "sums", False) else type(self)._all_reduce_sum_gradients(self, grads_and_vars)
    )


def _overwrite_model_variables_with_average_value(self: Any, trainable_variables: Any) -> None:
    """Each replica gives its own copies of the weights their averages."""
    if not several():
        type(self)._overwrite_model_variables_with_average_value(self, trainable_variables)
        return
    for variable, average in zip(trainable_variables, self._model_variables_moving_average):
        if average is not None:
            _own_copy(_tensorflow(variable)).assign(_own_copy(_tensorflow(average)))


def _assign_own_copy(self: Any, value: Any) -> None:
    """Replaces ``_direct_assign`` of the count of steps, which all replicas raise alike."""
    variable = self._value
    if several() and tf.__internal__.distribute.strategy_supports_no_merge_call():
        variable = _own_copy(variable)
    variable.assign(tf.cast(value, variable.dtype))


def _tensorflow(variable: Any) -> Any:
    return variable.value if isinstance(variable, backend.Variable) else variable


def _own_copy(variable: Any) -> Any:
    """The copy of a mirrored variable that belongs to the replica whose code this is."""
    copies = tf.distribute.get_strategy().experimental_local_results(variable)
    return copies[int(tf.distribute.get_replica_context()._replica_id)] if len(copies) > 1 else copies[0]
