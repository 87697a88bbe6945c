"""cuDNN's recurrent operation as NVIDIA describes it, one step after another, for machines without a GPU.

Weights come as one vector: for each gate the matrix of the inputs, then for each gate the recurrent matrix, each of
shape ``(units, columns)``, then the input biases and the recurrent biases. An LSTM's gates are input, forget, new and
output; a GRU's are reset, update and new.

Source: cuDNN developer guide, ``cudnnRNNMode_t`` and ``cudnnGetRNNWeightParams``.
"""

from __future__ import annotations

from typing import Any, Sequence

from tests.stack import tf


class StandIn:
    """``CudnnRNNV3``, and how it was used.

    Attributes:
        calls: ``(layout, mode, dtype)`` of each call.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def operation(
        self, mode: str, inputs: Any, initial: Sequence[Any], vector: Any, lengths: Any, time_major: bool
    ) -> tuple[Any, Any, Any]:
        """Outputs and last states; nothing after the end of a sequence."""
        self.calls.append(("time first" if time_major else "batch first", mode, inputs.dtype.name))
        axis = 0 if time_major else 1
        assert all(state.shape[axis] == 1 for state in initial)
        steps = inputs if time_major else tf.transpose(inputs, (1, 0, 2))
        outputs, last = _run(mode, steps, [tf.squeeze(state, axis) for state in initial], vector, lengths)
        outputs = outputs if time_major else tf.transpose(outputs, (1, 0, 2))
        return outputs, *[tf.expand_dims(state, axis) for state in last]


def _run(mode: str, steps: Any, states: Sequence[Any], vector: Any, lengths: Any) -> tuple[Any, list[Any]]:
    units, features, gates = states[0].shape[1], steps.shape[2], 4 if mode == "lstm" else 3
    of_inputs, recurrent, at_inputs, at_states = _parts(vector, gates, units, features)
    hidden, cell = states[0], states[1] if mode == "lstm" else tf.zeros_like(states[0])
    outputs = []
    for index in range(steps.shape[0]):
        x = [tf.matmul(steps[index], w, transpose_b=True) + b for w, b in zip(of_inputs, at_inputs)]
        h = [tf.matmul(hidden, w, transpose_b=True) + b for w, b in zip(recurrent, at_states)]
        new_hidden, new_cell = (_lstm if mode == "lstm" else _gru)(x, h, hidden, cell)
        runs = tf.expand_dims(index < lengths, axis=1)
        hidden, cell = tf.where(runs, new_hidden, hidden), tf.where(runs, new_cell, cell)
        outputs.append(tf.where(runs, hidden, tf.zeros_like(hidden)))
    return tf.stack(outputs), [hidden, cell]


def _parts(vector: Any, gates: int, units: int, features: int) -> list[list[Any]]:
    """The vector's matrices and biases, by gate."""
    sizes = [(units, features)] * gates + [(units, units)] * gates + [(units,)] * (2 * gates)
    found, start = [], 0
    for size in sizes:
        end = start + size[0] * (size[1] if len(size) == 2 else 1)
        found.append(tf.reshape(vector[start:end], size))
        start = end
    assert start == vector.shape[0]
    return [found[index * gates : (index + 1) * gates] for index in range(4)]


def _lstm(x: list[Any], h: list[Any], hidden: Any, cell: Any) -> tuple[Any, Any]:
    del hidden
    entry, forget, new, exit_ = (a + b for a, b in zip(x, h))
    cell = tf.sigmoid(forget) * cell + tf.sigmoid(entry) * tf.tanh(new)
    return tf.sigmoid(exit_) * tf.tanh(cell), cell


def _gru(x: list[Any], h: list[Any], hidden: Any, cell: Any) -> tuple[Any, Any]:
    reset, update = tf.sigmoid(x[0] + h[0]), tf.sigmoid(x[1] + h[1])
    new = tf.tanh(x[2] + reset * h[2])
    return (1.0 - update) * new + update * hidden, cell
