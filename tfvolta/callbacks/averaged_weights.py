"""Gives the weights their average when training ends."""

from __future__ import annotations

from tfvolta.callbacks.base import Callback, Logs


class AveragedWeights(Callback):
    """Puts the average that the optimiser kept into the model's weights when fit ends.

    Optimisers of Keras's new family do it themselves; those of TensorFlow Addons wait to be told.
    """

    def on_train_end(self, logs: Logs = None) -> None:
        """Assigns the average."""
        self.bridge.assign_average(self.model)
