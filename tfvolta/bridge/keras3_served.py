"""Keras 3: variables that live on parameter servers, whole or in shards.

Keras 3.15 does not know them, and four things go wrong:

- ``assign_add`` reads, adds and writes. Two workers that do so at once lose one of the two; here the server adds.
- Rows are looked up by reading the whole table first, over the network. Here only the rows asked for travel.
- A variable in shards has no ``__array__``, so that no model with one can be saved.
- The slots of an optimiser for such a variable are made whole, all on one server. Here each lies beside its shard.

Source: keras/src/backend/tensorflow/core.py, optimizer.py and numpy.py; ``ShardedVariable`` in TensorFlow's
sharded_variable.py.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src import backend, initializers
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.tensorflow import core
from keras.src.backend.tensorflow import numpy as keras_numpy
from keras.src.backend.tensorflow.optimizer import TFOptimizer

_own_initialize = core.Variable._initialize
_own_slot = TFOptimizer.add_variable_from_reference
_own_take = keras_numpy.take
_MAKE = "_tfvolta_make_shards"
ShardedVariable = tf.__internal__.distribute.ShardedVariable


class Served(backend.Variable):  # type: ignore[misc]
    """A Keras variable on a parameter server."""

    def assign_add(self, value: Any) -> Any:
        """Adds on the server, in one operation."""
        return self._change(value, "assign_add", super().assign_add)

    def assign_sub(self, value: Any) -> Any:
        """Subtracts on the server, in one operation."""
        return self._change(value, "assign_sub", super().assign_sub)

    def _change(self, value: Any, method: str, own: Any) -> Any:
        if in_stateless_scope():
            return own(value)
        value = self._convert_to_tensor(value, dtype=self._dtype)
        getattr(self._value, method)(tf.broadcast_to(value, self._shape))
        return tf.convert_to_tensor(self._value)


class Sharded(Served):
    """A Keras variable in shards on several parameter servers."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        del copy  # the shards are put together anew each time
        return np.asarray(self._value.numpy(), dtype=dtype)

    def _initialize_with_initializer(self, initializer: Any) -> None:
        make = self.__dict__.pop(_MAKE, None)
        if make is None:
            super()._initialize_with_initializer(initializer)
        else:
            self._value = make()

    @property
    def shards(self) -> list[Any]:
        """TensorFlow's variables that it consists of, in the order of its rows."""
        return list(self._value.variables)


def install() -> bool:
    """Corrects Keras's classes; nothing changes for variables made under other strategies. False where done already."""
    if core.Variable._initialize is not _own_initialize:
        return False
    core.Variable._initialize = _initialize
    TFOptimizer.add_variable_from_reference = _slot
    keras_numpy.take = _take
    return True


def shards_of(variable: Any) -> list[Any]:
    """TensorFlow's variables that a Keras variable consists of; one for a variable that is whole."""
    return variable.shards if isinstance(variable, Sharded) else [variable._value]


def _initialize(self: Any, value: Any) -> None:
    """Replaces ``Variable._initialize``."""
    _own_initialize(self, value)
    if type(self) is not backend.Variable or not isinstance(
        tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy
    ):
        return
    self.__class__ = Sharded if isinstance(self._value, ShardedVariable) else Served


def _slot(self: Any, reference_variable: Any, name: Any = None, initializer: Any = "zeros") -> Any:
    """Replaces ``TFOptimizer.add_variable_from_reference``: the slot of a sharded variable has the same shards."""
    if not isinstance(reference_variable, Sharded):
        return _own_slot(self, reference_variable, name=name, initializer=initializer)
    initializer = initializers.get(initializer)
    with backend.name_scope(self.name, caller=self):
        slot = backend.Variable.__new__(Sharded)
        slot.__dict__[_MAKE] = functools.partial(_like, reference_variable, initializer)
        slot.__init__(
            initializer=initializer,
            shape=tuple(reference_variable.shape),
            dtype=reference_variable.dtype,
            trainable=False,
            name=f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
        )
    self._track_variable(slot)
    return slot


def _like(variable: Sharded, initializer: Any) -> Any:
    """A sharded variable of which each shard lies on the server of the other's."""
    strategy = tf.distribute.get_strategy()
    made = []
    for shard in variable.shards:
        with strategy.extended.colocate_vars_with(shard):
            value = functools.partial(initializer, tuple(shard.shape), dtype=variable.dtype)
            made.append(tf.Variable(value, dtype=variable.dtype, trainable=False))
    return ShardedVariable(made)


def _take(x: Any, indices: Any, axis: Any = None) -> Any:
    """Replaces ``take`` of Keras's TensorFlow backend, for rows of a variable on servers."""
    if axis != 0 or not isinstance(x, Served) or in_stateless_scope() or len(x.shape) == 0:
        return _own_take(x, indices, axis=axis)
    if isinstance(indices, (tf.SparseTensor, tf.RaggedTensor)):
        return _own_take(x, indices, axis=axis)
    indices = core.convert_to_tensor(indices)
    indices = tf.where(indices < 0, indices + tf.cast(x.shape[0], indices.dtype), indices)
    return tf.cast(tf.nn.embedding_lookup(shards_of(x), indices), x.dtype)
