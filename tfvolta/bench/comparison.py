"""Two contenders against each other: what one gains, and whether its training is still the same."""

from __future__ import annotations

import statistics
from typing import Any, Optional, Sequence

from tfvolta.bench.judged import Band, Comparison
from tfvolta.bench.measured import Entry, Figures, Lap, Loss, Span
from tfvolta.measure.exact import prediction_interval, sign_interval

# Two losses on one machine, in the last digits of float32, are no difference, however little seeds differ.
_ROUNDING = 1e-5
_FEWEST_SEEDS = 2


def compare(treated: Entry, reference: Entry, least_gain: float = 0.0) -> Comparison:
    """Sets a contender against a reference; both were measured, and in the same rounds.

    Args:
        treated: The one that is to be better.
        reference: The one before.
        least_gain: By how much throughput must rise at least to be a win, as a share.
    """
    pairs = _pairs(treated, reference)
    throughput, times = _ratios(pairs, treated, reference)
    span = Span.of(sign_interval([ratio for of_seed in throughput for ratio in of_seed]))
    band = loss_band(treated, reference)
    by_seed = tuple(statistics.median(of_seed) for of_seed in throughput)
    gains, why = _gains(span, by_seed, least_gain)
    assert treated.figures is not None and reference.figures is not None
    return Comparison(
        treated=treated.name,
        reference=reference.name,
        throughput=span,
        epoch_time=Span.of(sign_interval([ratio for of_seed in times for ratio in of_seed])),
        by_seed=by_seed,
        n=sum(len(of_seed) for of_seed in throughput),
        **_peaks(treated.figures, reference.figures),
        band=band,
        wins=gains and band.holds is True,
        why=(*why, band.words),
    )


def _pairs(treated: Entry, reference: Entry) -> list[tuple[Lap, Lap]]:
    """Processes of one seed, which took turns."""
    by_seed = {lap.seed: lap for lap in reference.laps}
    return [(lap, by_seed[lap.seed]) for lap in treated.laps if lap.seed in by_seed]


def _ratios(
    pairs: Sequence[tuple[Lap, Lap]], treated: Entry, reference: Entry
) -> tuple[list[list[float]], list[list[float]]]:
    """Ratios of throughput and of epoch time, for each pair of processes and each round."""
    assert treated.figures is not None and reference.figures is not None
    examples = treated.figures.examples_per_step / reference.figures.examples_per_step
    throughput, times = [], []
    for ours, theirs in pairs:
        rounds = list(zip(ours.epochs, theirs.epochs))
        times.append([a.seconds / b.seconds for a, b in rounds])
        throughput.append([examples * (a.steps / a.train_seconds) / (b.steps / b.train_seconds) for a, b in rounds])
    return throughput, times


def _gains(span: Span, by_seed: Sequence[float], least: float) -> tuple[bool, list[str]]:
    """Whether throughput rose, and what speaks for it or against it."""
    low, high, confidence = span.low, span.high, f"{100 * span.confidence:.0f} %"
    interval = f"{low:.3f} to {high:.3f} ({confidence})"
    enough = f" above {1 + least:.3f}" if least else ""
    if high < 1:
        return False, [f"slower: {span.estimate:.3f} times the throughput, {interval}"]
    if low <= 1 + least:
        return False, [
            f"no gain shown{enough}: {span.estimate:.3f} times the throughput, but the interval is {interval}"
        ]
    if any(ratio <= 1 + least for ratio in by_seed):
        said = ", ".join(f"{ratio:.3f}" for ratio in by_seed)
        return False, [f"no gain in every process: {said}"]
    if span.confidence < 0.9:
        return False, [f"too few rounds: {interval}; six or more are needed for 95 %"]
    return True, [f"faster: {span.estimate:.3f} times the throughput, {interval}"]


def _peaks(treated: Figures, reference: Figures) -> dict[str, Optional[float]]:
    def ratio(ours: Optional[int], theirs: Optional[int]) -> Optional[float]:
        return None if not ours or not theirs else ours / theirs

    return {
        "device_peak": ratio(treated.device_peak_bytes, reference.device_peak_bytes),
        "host_peak": ratio(treated.host_peak_bytes, reference.host_peak_bytes),
    }


def loss_band(treated: Entry, reference: Entry) -> Band:
    """Where the treated contender's last loss lies, against the spread that seeds alone give the reference.

    The band is the interval in which the mean of as many further runs of the reference would lie with 95 %, after as
    many steps. A loss below it is as suspicious as one above, except where steps have more examples.
    Source: Hahn and Meeker, Statistical Intervals (1991), section 4.7.
    """
    pairs = _pairs(treated, reference)
    ours, theirs = tuple(_last(a) for a, _ in pairs), tuple(_last(b) for _, b in pairs)
    found = {"values": theirs, "treated": ours, "seeds": tuple(lap.seed for lap, _ in pairs)}
    if any(loss is None for loss in ours):
        return Band(**found, holds=False, words="the loss is not finite")
    known, own = _known(theirs), _known(ours)
    if len(known) < max(len(theirs), 1):
        return Band(**found, words=f"the loss of {reference.name} is not finite: nothing to compare with")
    mean = statistics.fmean(own)
    if len(known) < _FEWEST_SEEDS:
        words = f"loss {mean:.4g}, {reference.name} {known[0]:.4g}; the band needs two seeds or more: --seeds 0,1,2"
        return Band(**found, treated_mean=mean, words=words)
    return _judged(found, mean, known, _grown(treated, reference))


def _judged(found: dict[str, Any], mean: float, known: Sequence[float], grown: bool) -> Band:
    interval = prediction_interval(known, further=len(found["treated"]))
    slack = _ROUNDING * abs(interval.estimate)
    low, high = interval.low - slack, interval.high + slack
    holds = mean <= high and (grown or mean >= low)
    seeds = ", ".join(str(seed) for seed in found["seeds"])
    where = "in" if holds else "outside"
    words = f"loss {mean:.4g} {where} the band {low:.4g} to {high:.4g} (95 %, seeds {seeds})"
    if holds and mean < low:
        words = f"loss {mean:.4g} below the band {low:.4g} to {high:.4g}, with more examples a step (seeds {seeds})"
    return Band(**found, treated_mean=mean, interval=Span.of(interval), holds=holds, words=words)


def _grown(treated: Entry, reference: Entry) -> bool:
    assert treated.figures is not None and reference.figures is not None
    return treated.figures.examples_per_step > reference.figures.examples_per_step


def _last(lap: Lap) -> Loss:
    return lap.epochs[-1].loss if lap.epochs else None


def _known(losses: Sequence[Loss]) -> list[float]:
    return [float(loss) for loss in losses if loss is not None]
