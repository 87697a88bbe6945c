"""The part of every bridge that makes a model leave out rows which only fill a batch up."""

from __future__ import annotations

from typing import Any, Protocol

from tfvolta.bridge import padded_rows, padding_refusals
from tfvolta.bridge.padded_rows import StackMetrics


class _Layered(Protocol):
    """What the part needs of the bridge that it belongs to."""

    keras: Any
    step_metrics: StackMetrics

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model by path."""

    def reset_functions(self, model: Any) -> None:
        """Forgets the traced functions."""


class PaddingPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def padding_refusals(self: _Layered, model: Any) -> list[str]:
        """What of a compiled model sees filled rows or cannot leave them out, each with the reason."""
        return padding_refusals.refusals(model, self.keras, self.layers(model))

    def leave_out_filled_rows(self: _Layered, model: Any) -> bool:
        """Makes a compiled model leave out rows of weight minus infinity; False where it does so already."""
        if padded_rows.is_installed(model):
            return False
        padded_rows.install(model, self.step_metrics, padding_refusals.scales(model, self.keras))
        self.reset_functions(model)
        return True
