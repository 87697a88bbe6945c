"""Ending the epochs of the running ``fit`` earlier, for every Keras.

``fit`` keeps the number of batches of an epoch in the object that enumerates them: ``epoch_iterator`` in Keras 3,
``data_handler`` in Keras 2. Set when training begins, it ends every epoch there; the next begins with the data anew.
Source: keras/src/trainers/epoch_iterator.py of Keras 3.15; keras/src/engine/data_adapter.py of Keras 2.15.
"""

from __future__ import annotations

from typing import Any

from tfvolta.bridge import running_fit


def end_epochs_after(model: Any, batches: int) -> bool:
    """Makes each epoch of the running ``fit`` end after so many batches; from ``on_train_begin``.

    Returns:
        False where that cannot be done: outside of a fit, or where one iterator serves all epochs (steps_per_epoch).
    """
    variables = running_fit.local_variables(model) or {}
    if variables.get("steps_per_epoch"):
        return False
    epochs, handler = variables.get("epoch_iterator"), variables.get("data_handler")
    if epochs is not None:
        epochs._num_batches = batches
    elif handler is not None:
        # Arrays are one long iterator over all epochs, and a data set is counted anew before each of them.
        handler._inferred_steps = handler._steps_per_epoch = batches
        handler._adapter.__dict__["should_recreate_iterator"] = lambda: True
    else:
        return False
    callbacks: Any = variables.get("callbacks")
    if getattr(callbacks, "params", None):
        callbacks.set_params({**callbacks.params, "steps": batches})
    return True
