"""A whole sequence through one of cuDNN's LSTMs or GRUs: weights, axes, directions and lengths as cuDNN wants them.

Sequences that are all of full length go time first, the layout that cuDNN computes in: it then computes on them as they
lie, while batch first it copies them into that layout and back. Padded ones go batch first.

Both tell their lengths. The operations that do not, ``CudnnRNN`` and ``CudnnRNNV2``, do not run with TensorFlow 2.21
and cuDNN 9: 'Failed to call DoRnnForward' and 'No algorithm worked!' (seen on an NVIDIA H200).

Source: tensorflow/core/kernels/cudnn_rnn_ops.cc (``ShouldUsePaddedIO``); keras/src/backend/
tensorflow/rnn.py (``_cudnn_lstm``, ``_cudnn_gru``).
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

LSTM = "lstm"
GRU = "gru"


def parameters(mode: str, kernel: Any, recurrent_kernel: Any, bias: Any) -> Any:
    """Keras's weights as cuDNN's one vector, in the dtype of ``kernel``.

    All gates' input weights come first, then the recurrent ones, each transposed, then the input biases and the
    recurrent ones. Keras's LSTM has one bias, which becomes the recurrent one. Keras's GRU has its gates in the order
    update, reset, new; cuDNN's is reset, update, new.

    Args:
        mode: ``lstm`` or ``gru``.
        kernel: Shape ``(features, gates * units)``.
        recurrent_kernel: Shape ``(units, gates * units)``.
        bias: Shape ``(4 * units,)`` of an LSTM, ``(2, 3 * units)`` of a GRU.
    """
    if mode == GRU:
        kernel, recurrent_kernel, bias = (_reset_first(each) for each in (kernel, recurrent_kernel, bias))
        biases = [tf.reshape(bias, (-1,))]
    else:
        biases = [tf.zeros_like(bias), bias]
    weights = [tf.reshape(tf.transpose(each), (-1,)) for each in (kernel, recurrent_kernel)]
    return tf.concat([*weights, *biases], axis=0)


def _reset_first(weight: Any) -> Any:
    update, reset, new = tf.split(weight, 3, axis=-1)
    return tf.concat([reset, update, new], axis=-1)


def whole(mode: str, inputs: Any, states: Sequence[Any], vector: Any, go_backwards: bool) -> tuple[Any, list[Any]]:
    """Runs sequences of full length.

    Args:
        mode: ``lstm`` or ``gru``.
        inputs: Shape ``(batch, time, features)``.
        states: One state or two, each of shape ``(batch, units)``.
        vector: What ``parameters`` returns.
        go_backwards: Begin with the last step; outputs come in the order in which they were computed.

    Returns:
        Outputs of shape ``(batch, time, units)``, and the last states.
    """
    steps = tf.transpose(inputs, (1, 0, 2))
    if go_backwards:
        steps = tf.reverse(steps, axis=(0,))
    initial = [tf.expand_dims(state, axis=0) for state in states]
    shape = tf.shape(steps)
    outputs, *last = operation(mode, steps, initial, vector, tf.fill([shape[1]], shape[0]), time_major=True)
    return tf.transpose(outputs, (1, 0, 2)), [tf.squeeze(state, axis=0) for state in last[: len(states)]]


def padded(
    mode: str, inputs: Any, states: Sequence[Any], vector: Any, lengths: Any, go_backwards: bool
) -> tuple[Any, list[Any]]:
    """Runs sequences that end at their lengths, which are at least 1; outputs are zero where there is no step.

    Args and results as of ``whole``; ``lengths`` is int32 of shape ``(batch,)``. Backwards, the steps of a
    sequence come last in the outputs, as in Keras.
    """
    if go_backwards:
        inputs = tf.reverse_sequence(inputs, lengths, seq_axis=1, batch_axis=0)
    initial = [tf.expand_dims(state, axis=1) for state in states]
    outputs, *last = operation(mode, inputs, initial, vector, lengths, time_major=False)
    if go_backwards:
        outputs = tf.reverse(tf.reverse_sequence(outputs, lengths, seq_axis=1, batch_axis=0), axis=(1,))
    return outputs, [tf.squeeze(state, axis=1) for state in last[: len(states)]]


def operation(
    mode: str, inputs: Any, initial: Sequence[Any], vector: Any, lengths: Any, time_major: bool
) -> tuple[Any, Any, Any]:
    """cuDNN's operation itself: outputs, last state, last cell state."""
    result = tf.raw_ops.CudnnRNNV3(
        input=inputs,
        input_h=initial[0],
        input_c=initial[1] if mode == LSTM else tf.zeros((), inputs.dtype),
        params=vector,
        sequence_lengths=lengths,
        rnn_mode=mode,
        is_training=True,  # what gradients need, in inference mode too
        time_major=time_major,
    )
    return result.output, result.output_h, result.output_c
