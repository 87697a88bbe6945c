"""What a GPU can do at most: floating-point operations and memory traffic a second, by card and number format.

Figures are those of NVIDIA's data sheets, dense (data sheets of Hopper print twice as much for Tensor Cores, which
holds for weights of which half are zeros), at boost clock.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Mapping, Optional

_VOLTA = "NVIDIA V100 Tensor Core GPU data sheet (January 2020)"
_AMPERE = "NVIDIA A100 Tensor Core GPU data sheet (June 2021)"
_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet, halved where it counts sparsity"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet, halved where it counts sparsity"


@dataclasses.dataclass(frozen=True)
class Peak:
    """One card.

    Attributes:
        card: Its name.
        tera_flops: Operations a second by format, in units of 10^12; an addition and a multiplication are two. A format
            that the card does not have is missing.
        memory_gb_per_second: Traffic between chip and memory, in units of 10^9 bytes.
        source: Where the figures are from.
    """

    card: str
    tera_flops: Mapping[str, float]
    memory_gb_per_second: float
    source: str

    def flops(self, compute_dtype: str, tf32: bool) -> Optional[float]:
        """Operations a second for a model that computes in a type; None where the card's Tensor Cores have it not.

        Args:
            compute_dtype: ``float32``, ``float16`` or ``bfloat16``.
            tf32: Whether float32 products may be computed in TF32.
        """
        wanted = "tf32" if compute_dtype == "float32" and tf32 and "tf32" in self.tera_flops else compute_dtype
        found = self.tera_flops.get(wanted)
        return None if found is None else found * 1e12


def _volta(card: str, float32: float, float16: float, bandwidth: float) -> Peak:
    return Peak(card, {"float32": float32, "float16": float16}, bandwidth, _VOLTA)


def _later(card: str, float32: float, tf32: float, half: float, where: tuple[float, str]) -> Peak:
    formats = {"float32": float32, "tf32": tf32, "float16": half, "bfloat16": half}
    return Peak(card, formats, where[0], where[1])


# Pattern of the name that the driver gives -> peak; the first that matches counts.
_PEAKS: tuple[tuple[str, Peak], ...] = (
    (r"V100S", _volta("V100S PCIe 32 GB", 16.4, 130.0, 1134)),
    (r"V100.*(SXM2|SXM3|DGXS).*32GB|V100-SXM3", _volta("V100 SXM2 32 GB", 15.7, 125.0, 900)),
    (r"V100.*(SXM2|DGXS)", _volta("V100 SXM2 16 GB", 15.7, 125.0, 900)),
    (r"V100.*PCIE.*32GB", _volta("V100 PCIe 32 GB", 14.0, 112.0, 900)),
    (r"V100.*PCIE", _volta("V100 PCIe 16 GB", 14.0, 112.0, 900)),
    (r"A100.*SXM.*80GB", _later("A100 SXM 80 GB", 19.5, 156.0, 312.0, (2039, _AMPERE))),
    (r"A100.*80GB", _later("A100 PCIe 80 GB", 19.5, 156.0, 312.0, (1935, _AMPERE))),
    (r"A100", _later("A100 40 GB", 19.5, 156.0, 312.0, (1555, _AMPERE))),
    (r"H100.*NVL", _later("H100 NVL", 60.0, 417.5, 835.5, (3900, _HOPPER))),
    (r"H100.*PCIE", _later("H100 PCIe", 51.0, 378.0, 756.5, (2000, _HOPPER))),
    (r"H100", _later("H100 SXM", 67.0, 494.7, 989.4, (3350, _HOPPER))),
    (r"H200.*NVL", _later("H200 NVL", 60.0, 417.5, 835.5, (4800, _H200))),
    (r"H200", _later("H200 SXM", 67.0, 494.7, 989.4, (4800, _H200))),
)
PEAKS = tuple(peak for _, peak in _PEAKS)


def peak_of(name: str) -> Optional[Peak]:
    """The peak of a card.

    Args:
        name: As the driver gives it, such as ``Tesla V100-SXM2-16GB``.

    Returns:
        None for a card that is not in the table: nothing is guessed from a similar one.
    """
    words = name.upper().replace("80GB HBM3", "SXM 80GB")
    return next((peak for pattern, peak in _PEAKS if re.search(rf"(?<![A-Z]){pattern}", words)), None)


def utilisation(multiply_adds: float, seconds: float, peaks: float) -> float:
    """Model FLOPs utilisation: work of a training step over what the cards could have done in its time.

    Args:
        multiply_adds: Of the forward pass of one step; the backward pass has twice as many. Activations that are
            computed again do not count.
        seconds: Of the step.
        peaks: Operations a second of all cards together.

    Source: Chowdhery et al., PaLM (arXiv 2204.02311), appendix B.
    """
    return 3 * 2 * multiply_adds / seconds / peaks
