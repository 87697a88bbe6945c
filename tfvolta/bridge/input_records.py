"""What the bridges hand out about the data set of a running ``fit``: plain values, the same for every Keras."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Protocol


@dataclasses.dataclass(frozen=True)
class InputState:
    """How the data of the running fit are prepared and fetched.

    Attributes:
        kind: ``dataset`` for data that the script gave as such, else ``arrays``, ``generator``, ``sequence`` or
            ``other``, of which Keras makes a data set of its own.
        options: tf.data's options that are set, by the key of the section ``input``.
        prefetch: Batches that the last transformation fetches ahead, -1 for a number that is chosen; None without one.
        device: The device to which batches are copied ahead; empty for none.
        cache: ``memory``, the file that holds the batches, or empty.
        half: Parts of the features that are float16.
    """

    kind: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prefetch: Optional[int] = None
    device: str = ""
    cache: str = ""
    half: int = 0


@dataclasses.dataclass(frozen=True)
class HalfInputs:
    """Which inputs of a model are float16 to every layer that takes them.

    Attributes:
        names: Of the inputs, in the model's order.
        reasons: Why each one must stay as it is; empty where all that take it cast it to float16 first.
        why: Why nothing is known of the inputs; empty where it is.
    """

    names: tuple[str, ...]
    reasons: tuple[str, ...]
    why: str = ""


class Inputs(Protocol):
    """The part of ``tfvolta.bridge.base.Bridge`` that concerns the data of a fit."""

    def sequence_report(self, model: Any) -> Optional[Any]:
        """How the sequences of the running fit were batched; None where they were not, or outside a fit."""

    def input_state(self, model: Any) -> Optional[InputState]:
        """How the data of the running fit are prepared and fetched; None outside a fit."""

    def half_inputs(self, model: Any) -> HalfInputs:
        """Which inputs of a model can be given in float16 with the same results."""
