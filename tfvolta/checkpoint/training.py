"""What is saved: a model in a running fit, with the processes that train it."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional

from tfvolta.bridge.resuming_records import Named
from tfvolta.peers import Peers


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the config asks for; see ``tfvolta.config.distribution.Checkpoint``."""

    directory: str
    every_steps: Optional[int]
    every_epochs: Optional[int]
    keep: int
    resume: bool
    on_preemption: bool


@dataclasses.dataclass(frozen=True)
class Training:
    """A model that is being trained.

    Attributes:
        model: The model.
        bridge: The bridge to its Keras.
        peers: The processes that train it.
        epochs: Epochs that fit was asked for.
        warned: Takes a sentence that the reader should know.
        noted: Takes one that belongs into the evidence only.
    """

    model: Any
    bridge: Any
    peers: Peers
    epochs: int
    warned: Callable[[str], None]
    noted: Callable[[str], None]

    def groups(self, *names: str) -> dict[str, list[Named]]:
        """Variables of the named groups."""
        found = self.bridge.training_variables(self.model)
        return {name: found[name] for name in names}

    @property
    def epoch_batches(self) -> Optional[int]:
        """Batches of an epoch, where the running fit knows it."""
        stream = self.bridge.fit_stream(self.model)
        return None if stream is None else stream.epoch_batches

    @property
    def whole_epochs(self) -> bool:
        """Whether a place inside an epoch means nothing, since workers read the data at their own pace."""
        stream = self.bridge.fit_stream(self.model)
        return stream is not None and stream.kind == "remote"

    @property
    def optimizer(self) -> str:
        """Class of the optimiser inside a loss-scale wrapper."""
        inner = self.bridge.inner_optimizer(self.model.optimizer)
        return type(inner).__name__ if inner is not None else "none"
