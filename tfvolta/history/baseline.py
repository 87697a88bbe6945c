"""What a run is held to: an earlier run of the same script, and what of it may be compared.

Figures are compared where data, batch and seed are the same. Of the data a run knows the script that reads them, its
arguments and the number of steps in an epoch; what differs there is said, and nothing is compared.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from tfvolta.errors import EvidenceError
from tfvolta.history.entries import Entry, find_entry, read_history
from tfvolta.history.figures import FitFigures, fits_of
from tfvolta.measure.exact import prediction_interval

AUTO = "auto"
_FEWEST_RUNS = 3  # with two, Student's t is 12.7 and the band holds anything
_MOST_RUNS = 200  # each is a file to read when fit begins
# What asks for evidence, and not for another training.
_APART = ("run", "monitor", "guard", "checkpoint")


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The run that another is held to.

    Attributes:
        run_id: Its id.
        folder: Its folder.
        fits: Its figures, a fit each.
        alike: Those of runs under the same config whose seed differs, for the spread of the loss.
        no_rate: Why throughput is not compared; empty where it is.
        no_loss: Why the loss is not compared; empty where it is.
    """

    run_id: str
    folder: Path
    fits: tuple[FitFigures, ...]
    alike: tuple[tuple[FitFigures, ...], ...] = ()
    no_rate: str = ""
    no_loss: str = ""

    def fit(self, number: int) -> Optional[FitFigures]:
        """The figures of its fit of that number, from 1; None where it had fewer."""
        return self.fits[number - 1] if 0 < number <= len(self.fits) else None

    def band(self, number: int, epoch: int, share: float) -> Optional[LossBand]:
        """Where the loss of an epoch of a fit should lie; None where the earlier run has no such loss."""
        known = [fits[number - 1].losses.get(epoch) for fits in (self.fits, *self.alike) if 0 < number <= len(fits)]
        if not known or known[0] is None or not math.isfinite(known[0]):
            return None
        losses = [loss for loss in known if loss is not None and math.isfinite(loss)]
        return band_of(losses, share)


@dataclasses.dataclass(frozen=True)
class LossBand:
    """Where a loss should lie.

    Attributes:
        loss: The baseline's own.
        low: Lower end.
        high: Upper end.
        method: How it was made.
    """

    loss: float
    low: float
    high: float
    method: str

    def holds(self, loss: float) -> bool:
        """Whether a loss lies in it; one that is not finite does not."""
        return math.isfinite(loss) and self.low <= loss <= self.high


def band_of(losses: Sequence[float], share: float) -> LossBand:
    """The band around the loss of a baseline.

    With three runs or more that differ in their seed alone, it is at least the interval in which one more of them would
    lie with 95 %.

    Args:
        losses: The baseline's first, then those of the other runs; finite.
        share: Of the baseline's loss; how far it reaches at least to either side.
    """
    own, wide = losses[0], share * abs(losses[0])
    low, high, method = own - wide, own + wide, f"{100 * share:g} % of the baseline's"
    if len(losses) >= _FEWEST_RUNS:
        spread = prediction_interval(losses)
        low, high = min(low, spread.low), max(high, spread.high)
        method += f", and the 95 % prediction interval of {len(losses)} runs"
    return LossBand(own, low, high, method)


def find_baseline(own_folder: Path, asked: str) -> tuple[Optional[Baseline], str]:
    """The run that a running one is held to.

    Args:
        own_folder: Folder of the running one, in the folder of runs.
        asked: A run's id, or ``auto``: the latest completed run that compares fully and had no guard of its own, else
            the first that had one, so that runs which get slower one by one are not held to each other.

    Returns:
        The baseline, or None and why there is none.
    """
    directory = own_folder.parent
    try:
        own = find_entry(str(own_folder))
    except EvidenceError as error:
        return None, f"this run's own entry cannot be read: {error.summary}"
    if own.applied is None:
        return None, "this run keeps no entry of its own to compare by"
    history = read_history(directory, _MOST_RUNS).entries
    if asked != AUTO:
        try:
            other = find_entry(asked, directory)
        except EvidenceError as error:
            return None, error.summary
        return _baseline(own, other, history), ""
    same = [entry for entry in history if entry.run_id != own.run_id and _is_of(entry, own)]
    good = [entry for entry in same if entry.is_good and entry.evidence.fits]
    if not good:
        return None, "there is no earlier completed run of this script"
    fitting = [entry for entry in good if not _reasons(own, entry)]
    free = [entry for entry in fitting if not entry.evidence.config.values.get("guard")]
    chosen = free[0] if free else fitting[-1] if fitting else good[0]
    return _baseline(own, chosen, history), ""


def _is_of(entry: Entry, own: Entry) -> bool:
    return entry.script is not None and entry.script == own.script


def _baseline(own: Entry, other: Entry, history: Sequence[Entry]) -> Baseline:
    reasons = _reasons(own, other)
    elsewhere = "" if reasons else _other_machine(own, other)
    alike = [entry for entry in history if entry.run_id not in (own.run_id, other.run_id) and _is_alike(entry, other)]
    return Baseline(
        run_id=other.run_id,
        folder=other.folder,
        fits=fits_of(other.evidence),
        alike=tuple(fits_of(entry.evidence) for entry in alike),
        no_rate="; ".join(reasons) or elsewhere,
        no_loss="; ".join(reasons),
    )


def _reasons(own: Entry, other: Entry) -> list[str]:
    """Why nothing of two runs may be compared."""
    found = []
    if own.applied is None or other.applied is None:
        return [f"{other.run_id} kept no sources to compare by"]
    mine, theirs = own.applied.sources, other.applied.sources
    changed = [name for name in dict.fromkeys([*mine, *theirs]) if mine.get(name) != theirs.get(name)]
    if changed:
        found.append(f"the code differs: {', '.join(changed[:3])}{' and more' if len(changed) > 3 else ''}")
    if own.arguments != other.arguments:
        found.append(f"the script's arguments differ: {_words(own.arguments)} here, {_words(other.arguments)} there")
    for key, name in (("run.seed", "seed"), ("fit.batch_size", "batch")):
        here, there = _value(own, key), _value(other, key)
        if here != there:
            found.append(f"the {name} differs: {key} is {here} here, {there} there")
    return found


def _other_machine(own: Entry, other: Entry) -> str:
    if own.applied is None or other.applied is None or own.applied.machine == other.applied.machine:
        return ""
    return f"the machine differs: {own.evidence.host} here, {other.evidence.host} there, with other hardware"


def _is_alike(entry: Entry, other: Entry) -> bool:
    """Whether a run differs from another in its seed alone."""
    if entry.applied is None or other.applied is None or not entry.is_good:
        return False
    return bool(
        entry.applied.sources == other.applied.sources
        and entry.arguments == other.arguments
        and entry.evidence.stack == other.evidence.stack
        and _settings(entry) == _settings(other)
        and _seed(entry) != _seed(other)
    )


def _settings(entry: Entry) -> dict[str, Any]:
    values = entry.evidence.config.values
    return {name: value for name, value in values.items() if name not in _APART and value is not None}


def _seed(entry: Entry) -> Any:
    return _value(entry, "run.seed")


def _value(entry: Entry, key: str) -> Any:
    value: Any = entry.evidence.config.values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _words(arguments: Sequence[str]) -> str:
    return " ".join(arguments) or "none"
