"""What every bridge offers for looking after float16's range."""

from __future__ import annotations

from typing import Any, Optional, Protocol

from tfvolta.bridge.gradient_records import GradientSample
from tfvolta.bridge.records import SkippedRow


class Numerics(Protocol):
    """The part of every bridge that concerns the range of numbers: loss scale and gradients."""

    def limit_loss_scale(self, model: Any) -> bool:
        """Brings a dynamic scale, restored perhaps from a file, within its bounds; False where it is there."""

    def skipped_row(self, optimizer: Any) -> Optional[SkippedRow]:
        """Steps skipped in a row, in one device read; None where nothing counts them."""

    def watch_gradients(self, model: Any, every: Optional[int]) -> bool:
        """Looks at a compiled model's gradients every so many steps, at no cost in the others; None: no longer.

        Returns:
            False where it was so already.
        """

    def start_watch(self, model: Any, active: bool = True) -> None:
        """Begins a fit that is looked at, or lets the watch rest; the model stays as it was traced."""

    def gradient_sample(self, model: Any) -> Optional[GradientSample]:
        """What was seen since this was called last, which waits for the device; None where no step was looked at."""

    def own_variables(self, layer: Any) -> list[Any]:
        """Variables that a layer holds itself, not through a layer below it."""
