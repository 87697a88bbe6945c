"""Keras 3: LSTM and GRU layers on cuDNN, time first where there is no mask, and whatever side a mask is padded on.

Keras 3 gives cuDNN padded sequences, batch first, with or without a mask, and fails on a GPU where a mask is not
padding on the right. Here sequences without a mask go in cuDNN's own layout, and a mask that cuDNN cannot serve
(padding on the left, a row without any step) runs Keras's own loop, chosen step by step as Keras 2 did.

Source: keras/src/layers/rnn/lstm.py and gru.py, ``inner_loop``; keras/src/backend/tensorflow/rnn.py.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import keras
import tensorflow as tf
from keras.src import backend, tree

from tfvolta.bridge import cudnn_sequence
from tfvolta.bridge.keras3_patch import Patch, patch_of
from tfvolta.bridge.kernel_records import RECURRENT
from tfvolta.bridge.tensorflow_private import in_xla_context

_MODES = ((keras.layers.LSTM, cudnn_sequence.LSTM), (keras.layers.GRU, cudnn_sequence.GRU))
_DTYPES = ("float16", "bfloat16", "float32", "float64")


def concerns(layer: Any) -> bool:
    """Whether a layer loops over time."""
    return isinstance(layer, keras.layers.RNN)


def has_cudnn() -> bool:
    """Whether TensorFlow has a GPU with cuDNN here."""
    return bool(tf.config.list_logical_devices("GPU")) and bool(tf.sysconfig.get_build_info().get("is_cuda_build"))


def reason(layer: Any) -> str:
    """Why a recurrent layer stays as Keras runs it; empty where cuDNN serves it."""
    base = next((kind for kind, _ in _MODES if isinstance(layer, kind)), None)
    if base is None:
        return f"cuDNN serves LSTM and GRU layers; this is {type(layer).__name__} with {type(layer.cell).__name__}"
    if not has_cudnn():
        return "TensorFlow has no GPU with cuDNN here"
    if type(layer).inner_loop is not base.inner_loop or type(layer).call is not base.call:
        return f"{type(layer).__name__} has code of its own in call or inner_loop"
    if layer.use_cudnn not in ("auto", True):
        return "use_cudnn=False asks for Keras's loop"
    if layer.recurrent_dropout:
        return f"recurrent_dropout={layer.recurrent_dropout:g}: cuDNN drops nothing between steps"
    if layer.dropout and layer.cell.implementation == 1:
        return "implementation=1 drops inputs for each gate by itself"
    reset_after = {} if base is keras.layers.LSTM else {"reset_after": layer.reset_after}
    if not backend.cudnn_ok(layer.activation, layer.recurrent_activation, layer.unroll, layer.use_bias, **reset_after):
        return "cuDNN has tanh and sigmoid, a bias, reset_after=True and unroll=False only"
    return ""


def inner_loop(self: Any, sequences: Any, initial_state: Any, mask: Any, training: Optional[bool] = False) -> Any:
    """Replaces ``inner_loop`` of an LSTM or GRU; same arguments and results."""
    mask = mask[0] if tree.is_nested(mask) else mask
    patch, why = patch_of(self, RECURRENT) or Patch(), _not_here(self, sequences, mask)
    if why:
        patch.fallbacks.add(why)
        return type(self).inner_loop(self, sequences, initial_state, mask, training=training)
    patch.used()
    mode = next(mode for kind, mode in _MODES if isinstance(self, kind))
    states = list(initial_state) if tree.is_nested(initial_state) else [initial_state]
    sequences = tf.convert_to_tensor(sequences)
    vector = cudnn_sequence.parameters(mode, *_weights(self.cell, sequences.dtype))
    inputs = _dropped(self, sequences, training)

    def on_cudnn() -> Any:
        if mask is None:
            outputs, last = cudnn_sequence.whole(mode, inputs, states, vector, self.go_backwards)
        else:
            outputs, last = _padded(self, mode, inputs, states, vector, mask)
        return last[0], outputs if self.return_sequences else tf.expand_dims(last[0], axis=1), last

    if mask is None:
        return on_cudnn()
    mask = tf.cast(mask, tf.bool)

    def in_a_loop() -> Any:
        last, outputs, after = keras.layers.RNN.inner_loop(self, sequences, states, mask=mask, training=training)
        return last, outputs, list(after)

    return tf.cond(_is_padding(mask), on_cudnn, in_a_loop)


def _not_here(layer: Any, sequences: Any, mask: Any) -> str:
    """Why this call runs Keras's own code; empty where cuDNN serves it."""
    if in_xla_context():
        return Patch.compiled
    dtype = backend.standardize_dtype(sequences.dtype)
    if dtype not in _DTYPES or dtype != layer.cell.compute_dtype:
        return f"its inputs are {dtype} and its cell computes in {layer.cell.compute_dtype}"
    if mask is not None and len(mask.shape) != 2:
        return f"its mask has rank {len(mask.shape)}"
    return ""


def _weights(cell: Any, dtype: Any) -> list[Any]:
    """Kernel, recurrent kernel and bias of a cell, in the dtype of the inputs."""
    return [tf.cast(tf.convert_to_tensor(each), dtype) for each in (cell.kernel, cell.recurrent_kernel, cell.bias)]


def _dropped(layer: Any, sequences: Any, training: Optional[bool]) -> Any:
    """The inputs with the cell's dropout, the same for each step, as in Keras."""
    if not training or not layer.dropout:
        return sequences
    kept = layer.cell.get_dropout_mask(sequences[:, 0, :])
    return sequences * tf.expand_dims(kept, axis=1)


def _is_padding(mask: Any) -> Any:
    """Whether a mask leaves out ends of sequences only, and no whole sequence: what cuDNN can serve."""
    lengths = _lengths(mask)
    right = tf.reduce_all(tf.equal(mask, tf.sequence_mask(lengths, maxlen=tf.shape(mask)[1])))
    return tf.logical_and(right, tf.reduce_all(lengths > 0))


def _lengths(mask: Any) -> Any:
    return tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)


def _padded(layer: Any, mode: str, inputs: Any, states: Sequence[Any], vector: Any, mask: Any) -> tuple[Any, list[Any]]:
    """cuDNN with lengths; what follows the end of a sequence repeats its last output, as in Keras's loop."""
    mask = tf.cast(mask, tf.bool)
    outputs, last = cudnn_sequence.padded(mode, inputs, states, vector, _lengths(mask), layer.go_backwards)
    if layer.return_sequences and not layer.go_backwards and not layer.zero_output_for_mask:
        outputs = tf.where(tf.expand_dims(mask, axis=-1), outputs, tf.expand_dims(last[0], axis=1))
    return outputs, last
