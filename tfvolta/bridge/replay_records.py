"""What looking into a bad step shows: plain values, the same for every Keras."""

from __future__ import annotations

import dataclasses
from typing import Optional

NOTHING = "nothing"


@dataclasses.dataclass(frozen=True)
class Culprit:
    """What was not finite first in a train step.

    Attributes:
        kind: ``weights``, ``inputs``, ``targets``, ``activations``, ``loss`` or ``gradients``; ``nothing`` where the
            step was finite when it was run again, or could not be.
        layer: Path of the layer; empty where none is to blame.
        class_name: Its class.
        detail: What was seen, in a sentence.
        loss_scale: With which the step was run again; None where the loss is not scaled.
        batches_ago: Batches that were trained after the one that shows it.
        remembered_weights: Whether the weights were those of the start of the epoch, the present ones being damaged.
    """

    kind: str
    layer: str = ""
    class_name: str = ""
    detail: str = ""
    loss_scale: Optional[float] = None
    batches_ago: int = 0
    remembered_weights: bool = False

    def to_json(self) -> dict[str, object]:
        """The fields."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if self.kind == NOTHING:
            return self.detail
        named = f"layer {self.layer} ({self.class_name})" if self.layer else "no single layer"
        weights = ", with the weights of the start of the epoch" if self.remembered_weights else ""
        return f"not finite first: {self.kind}, {named}{weights}; {self.detail}"
