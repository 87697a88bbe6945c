"""What comparisons and gates of a bench say, as it is saved."""

from __future__ import annotations

from typing import Optional

from tfvolta.bench.measured import Loss, Span
from tfvolta.evidence.schema import Record
from tfvolta.evidence.values import Text


class Band(Record):
    """The last loss of the baseline over its seeds, and where that of a sound run lies.

    Attributes:
        values: The baseline's last losses.
        treated: Those of the other.
        treated_mean: Their mean.
        seeds: Seeds that both ran.
        interval: Prediction interval of the mean; None with fewer than two seeds.
        holds: Whether the other lies in it; None where it is not known.
        words: In a sentence.
    """

    values: tuple[Loss, ...] = ()
    treated: tuple[Loss, ...] = ()
    treated_mean: Optional[float] = None
    seeds: tuple[int, ...] = ()
    interval: Optional[Span] = None
    holds: Optional[bool] = None
    words: Text = ""


class Comparison(Record):
    """Two contenders, round by round.

    Attributes:
        throughput: Examples a second, ratio of the pairs.
        epoch_time: Seconds of an epoch, ratio of the pairs.
        by_seed: Median ratio of throughput in each pair of processes.
        n: Pairs.
        device_peak: Ratio of peak memory; None without GPUs.
        host_peak: The same of the host.
        band: Where the loss lies.
        wins: Whether it is a win.
        why: What speaks for it or against it, a sentence each.
    """

    treated: Text
    reference: Text
    throughput: Span
    epoch_time: Span
    by_seed: tuple[float, ...]
    n: int
    device_peak: Optional[float] = None
    host_peak: Optional[float] = None
    band: Band
    wins: bool
    why: tuple[Text, ...]


class Gate(Record):
    """One step of the way from the untouched script to several machines.

    Attributes:
        stage: What is added: ``one device``, ``one node``, ``several nodes``.
        passes: None where this machine has no such stage.
        comparison: With the stage before; None where it could not be made.
        efficiency: Gain over what as many more devices could give.
        reason: Why there is no comparison.
    """

    stage: str
    treated: Text = ""
    reference: Text = ""
    passes: Optional[bool] = None
    comparison: Optional[Comparison] = None
    efficiency: Optional[float] = None
    reason: Text = ""
