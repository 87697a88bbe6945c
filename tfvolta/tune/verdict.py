"""What a search has found, in a sentence."""

from __future__ import annotations

from typing import Optional, Sequence

from tfvolta.tune.confirmation import Confirmed
from tfvolta.tune.result import Ratio


def ratio_text(ratio: Ratio) -> str:
    """A ratio with its interval, such as ``1.31x (1.24x to 1.38x)``."""
    return f"{ratio.estimate:.2f}x ({ratio.low:.2f}x to {ratio.high:.2f}x)"


def sentence_of(confirmed: Optional[Confirmed], words: Sequence[str], trials: int) -> str:
    """The verdict.

    Args:
        confirmed: The repeats at the end; None where nothing was faster than the baseline.
        words: The best settings.
        trials: Trials of the search.
    """
    made = f"{trials} trial{'s' * (trials != 1)}"
    if confirmed is None:
        return f"No gain: of {made}, none was faster than the config as it is."
    settings = " ".join(words)
    if confirmed.gain is None:
        return f"Not measured: {settings} was the fastest of {made}, and its repeats failed: {confirmed.reason}."
    said = f"{ratio_text(confirmed.gain)}, {confirmed.gain.pairs} pairs"
    if confirmed.verdict == "gain":
        return f"Gain: {settings} trains at {said} of the throughput of the config as it is."
    if confirmed.verdict == "loss left the band":
        return f"No win: {settings} is at {said}, but training is not the same: {confirmed.reason}."
    return f"No gain: {settings} was the fastest of {made}, and repeats put it at {said}."
