"""What cuDNN's operation of a recurrent layer takes beside its inputs and outputs, as it stands in a traced step.

Reserve: what the forward pass keeps for the backward one; cuDNN says its size in ``cudnnGetRNNTempSpaceSizes``. Counted
are values of each step, unit and sequence: an LSTM's four gates and its cell state; a GRU's six. A thread has what
cuDNN said of a model with as many parameters as four layers of 320 units on 123 features have: 736,000,000 bytes of
LSTM and 864,000,000 of GRU, which are 4 x 5 + 3 and 4 x 6 + 3 such values in float32, if there were 25,000 steps times
sequences (it does not tell how many). The three would be outputs between layers; here each layer is an operation.
Source: https://github.com/pytorch/pytorch/issues/2895

Workspace: held while one operation runs, and asked for anew by the next. Its size is not documented. Two values of each
step, unit and sequence is the largest whole number for which the first step's peak of the benchmark's LSTM in float32
with 64 sequences leaves room; the other peaks are a check (docs/estimate_memory.md).
"""

from __future__ import annotations

_RESERVE = {"lstm": 5, "gru": 6}
_RESERVE_OF_OTHERS = 2
_WORKSPACE = 2


def reserve_values(mode: str, steps_and_batch: int, units: int) -> int:
    """Values that the forward pass keeps.

    Args:
        mode: TensorFlow's ``rnn_mode``: ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``.
        steps_and_batch: Steps of a sequence times sequences.
        units: Of the layer.
    """
    return steps_and_batch * units * _RESERVE.get(mode, _RESERVE_OF_OTHERS)


def workspace_values(steps_and_batch: int, units: int) -> int:
    """Values that one operation, of the forward or the backward pass, holds while it runs."""
    return steps_and_batch * units * _WORKSPACE
