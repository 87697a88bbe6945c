"""What is kept on a Keras 3 layer whose method runs a faster kernel."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Optional

KEY = "_tfvolta_kernels"


@dataclasses.dataclass
class Patch:
    """One kernel on one layer.

    Attributes:
        always: Whether the kernel is used inside a step that XLA compiles too.
        fallbacks: Why calls ran Keras's own code, as far as traced.
        compiled: The one of them that a later trace makes obsolete: that XLA compiled the step.
    """

    always: bool = False
    fallbacks: set[str] = dataclasses.field(default_factory=set)
    compiled: ClassVar[str] = "XLA compiles the step and fuses it by itself"

    def used(self) -> None:
        """Notes that a call ran the kernel; a trial with XLA, or a step that was compiled before, no longer counts."""
        self.fallbacks.discard(self.compiled)

    def __deepcopy__(self, memo: dict[int, Any]) -> Patch:
        return Patch(self.always)  # a copied layer has been traced by nobody


def patch_of(layer: Any, kind: str) -> Optional[Patch]:
    """The patch of a kind on a layer, or None."""
    found = layer.__dict__.get(KEY, {}).get(kind)
    return found if isinstance(found, Patch) else None
