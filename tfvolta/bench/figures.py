"""From the laps of a contender to its figures, and how far they can be trusted."""

from __future__ import annotations

import statistics
from typing import Any, Optional, Sequence

from tfvolta.bench.measured import Epoch, Figures, Lap, Noise, Span
from tfvolta.measure.exact import sign_interval, trend
from tfvolta.measure.peaks import peak_of, utilisation
from tfvolta.measure.statistics import mad

METHOD = (
    "One value an epoch: examples a second and step time until the loss of its last batch has come from the device; "
    "epoch time with what callbacks do at its end. Warm-up epochs do not count.",
    "Medians with exact intervals of the sign test (Conover, Practical Nonparametric Statistics, section 3.2); the "
    "confidence printed is the one that so many values give.",
    "Spread: median absolute deviation, scaled to a standard deviation (Rousseeuw and Croux 1993).",
    "Contenders take turns epoch by epoch in random order; ratios are those of epochs of one round.",
    "Drift: slope of Theil and Sen with Kendall's exact test.",
)
# From here on a machine is called noisy, or drifting.
_NOISY = 0.05
_DRIFT = 0.05
_CERTAIN = 0.05


def figures(laps: Sequence[Lap], examples_per_step: int, unit: str, workers: int) -> Figures:
    """Figures of all laps together.

    Args:
        laps: At least one, with at least one measured epoch.
        examples_per_step: Of all replicas.
        unit: What an example is.
        workers: Processes of a contender.
    """
    epochs = [epoch for lap in laps for epoch in lap.epochs]
    seconds = [epoch.seconds for epoch in epochs]
    steps = [epoch.train_seconds / epoch.steps for epoch in epochs]
    after = laps[0].after
    replicas = int(after.get("replicas", 1))
    if workers > 1 and replicas == 1:
        replicas = workers  # ranks of Horovod, which know of themselves alone
    rates = [epoch.steps * examples_per_step / epoch.train_seconds for epoch in epochs]
    return Figures(
        examples_per_step=examples_per_step,
        unit=unit,
        replicas=replicas,
        n=len(epochs),
        examples_per_second=Span.of(sign_interval(rates)),
        epoch_seconds=Span.of(sign_interval(seconds)),
        epoch_seconds_mad=mad(seconds),
        step_seconds=Span.of(sign_interval(steps)),
        step_seconds_mad=mad(steps),
        **_start(laps, seconds),
        **_memory(laps),
        input_share=_input_share(laps),
        losses=tuple(tuple(epoch.loss for epoch in (*lap.warmup, *lap.epochs)) for lap in laps),
        **_work(after, statistics.median(steps), replicas, workers),
        **_energy(epochs, examples_per_step, workers),
        noise=_noise(laps),
    )


def _median(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _start(laps: Sequence[Lap], seconds: Sequence[float]) -> dict[str, Any]:
    first = _median([lap.warmup[0].seconds for lap in laps if lap.warmup])
    counted = _median([_ledger(lap) for lap in laps])
    if counted is None and first is not None:
        counted = max(0.0, first - statistics.median(seconds))
    return {
        "start_seconds": _median([lap.start_seconds for lap in laps]),
        "first_epoch_seconds": first,
        "compile_seconds": counted,
    }


def _ledger(lap: Lap) -> Optional[float]:
    """Seconds of compilation that were counted; nothing where none was, for tracing alone is not in them."""
    found = (lap.measurements.get("compilations") or {}).get("compile_seconds")
    return float(found) if isinstance(found, (int, float)) and found > 0 else None


def _memory(laps: Sequence[Lap]) -> dict[str, Optional[int]]:
    devices = [peak for lap in laps for peak in (lap.after.get("device_peak_bytes") or {}).values()]
    hosts = [lap.after["host_peak_bytes"] for lap in laps if lap.after.get("host_peak_bytes")]
    return {
        "device_peak_bytes": max(devices) if devices else None,
        "host_peak_bytes": max(hosts) if hosts else None,
    }


def _input_share(laps: Sequence[Lap]) -> Optional[float]:
    found = [(lap.after.get("input") or {}).get("share") for lap in laps]
    return _median([float(share) for share in found if isinstance(share, (int, float))])


def _work(after: dict[str, Any], step_seconds: float, replicas: int, workers: int) -> dict[str, Any]:
    """Multiply-adds of a step of all processes, and the share of the cards' peak that they are."""
    work = after.get("multiply_adds")
    if work is None:
        return {"mfu_unknown": f"the work of a step is not known: {after.get('multiply_adds_unknown') or 'not told'}"}
    work = int(work) * (workers if int(after.get("replicas", 1)) == 1 else 1)
    devices = after.get("devices") or []
    if not devices:
        return {"multiply_adds": work, "mfu_unknown": "no GPU"}
    peak = peak_of(devices[0])
    if peak is None:
        return {"multiply_adds": work, "mfu_unknown": f"the peak of {devices[0]} is not in the table"}
    dtype, tf32 = str(after.get("compute_dtype")), bool(after.get("tf32"))
    flops = peak.flops(dtype, tf32)
    if flops is None:
        return {"multiply_adds": work, "mfu_unknown": f"{peak.card} has no peak for {dtype}"}
    said = "TF32" if dtype == "float32" and tf32 and "tf32" in peak.tera_flops else dtype
    of = f"{replicas} x {flops / 1e12:g} TFLOPS ({peak.card}, {said}; {peak.source})"
    return {"multiply_adds": work, "mfu": utilisation(work, step_seconds, flops * replicas), "mfu_of": of}


def _energy(epochs: Sequence[Epoch], examples_per_step: int, workers: int) -> dict[str, Any]:
    joules = [epoch.joules for epoch in epochs if epoch.joules is not None]
    if workers > 1:
        return {"energy_unknown": "counted for contenders of one process only"}
    if len(joules) < len(epochs):
        return {"energy_unknown": "NOT_APPLICABLE: no GPU here counts its energy through NVML"}
    return {"joules_per_example": sum(joules) / sum(epoch.steps * examples_per_step for epoch in epochs)}


def _noise(laps: Sequence[Lap]) -> Noise:
    """Spread over all epochs; the drift of the lap that drifts most."""
    seconds = [epoch.train_seconds for lap in laps for epoch in lap.epochs]
    middle = statistics.median(seconds)
    spread = mad(seconds) / middle
    words = []
    if spread > _NOISY:
        words.append(
            f"noisy: epochs spread by {100 * spread:.1f} % of their median; differences below that mean little"
        )
    drifts = [(trend([e.train_seconds for e in lap.epochs]), len(lap.epochs)) for lap in laps if len(lap.epochs) > 1]
    if not drifts:
        return Noise(spread=spread, words="; ".join([*words, "one epoch a process says nothing about drift"]))
    most, count = max(drifts, key=lambda each: abs(each[0].slope) * (each[1] - 1))
    drift = most.slope * (count - 1) / middle
    if abs(drift) > _DRIFT and most.p < _CERTAIN:
        words.append(f"drifts: epochs became {100 * abs(drift):.1f} % {'longer' if drift > 0 else 'shorter'}")
    return Noise(spread=spread, drift=drift, drift_p=most.p, words="; ".join(words))
