"""What every bridge offers for looking after float16's range."""

from __future__ import annotations

from typing import Any, Callable, Optional, Protocol, Sequence

from tfvolta.bridge.gradient_records import GradientSample
from tfvolta.bridge.records import SkippedRow
from tfvolta.bridge.replay_records import Culprit


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

    def keep_batches(self, model: Any, number: Optional[int]) -> bool:
        """Keeps the last batches that a compiled model is trained with, where they are; None: no longer.

        Calls of several batches (``steps_per_execution``) hand none out.

        Returns:
            False where it was so already.
        """

    def start_keeping(self, model: Any, active: bool = True) -> None:
        """Begins a fit whose batches are kept, or lets go of them; the model stays as it was traced."""

    def bad_weights(self, model: Any, trainable: bool = True) -> list[str]:
        """What of a model's trainable weights, or of its others, is not finite, a sentence each; reads all of them."""

    def remembered_weights(self, model: Any) -> list[Any]:
        """The weights in the memory of the host, for ``find_culprit``."""

    def find_culprit(self, model: Any, remembered: Optional[list[Any]] = None, together: bool = False) -> Culprit:
        """What was not finite first in the batches that are kept, the oldest first; the model stays as it is.

        Args:
            remembered: Weights to run them with where the present ones are damaged; None: those are the finding.
            together: Whether all workers of a strategy do so now, so that each has to run as many steps.
        """

    def called_classes(self) -> Sequence[Any]:
        """What calls of layers are calls of, the most special first."""

    def scale_variable(self, optimizer: Any) -> Optional[Any]:
        """TensorFlow's variable of a loss scale that changes; None where there is none."""

    def keep_float32_constructed(self, patterns: Sequence[str]) -> Callable[[], None]:
        """Makes layers that are constructed from now on and match compute in float32; the result ends that."""

    def float32_constructed(self) -> tuple[str, ...]:
        """The patterns by which layers are constructed in float32 at present."""

    def own_variables(self, layer: Any) -> list[Any]:
        """Variables that a layer holds itself, not through a layer below it."""
