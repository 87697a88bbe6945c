"""A bench on the terminal: figures side by side, comparisons and gates in sentences."""

from __future__ import annotations

from typing import Any, Callable, Optional

from rich.console import Console

from tfvolta.bench.judged import Comparison, Gate
from tfvolta.bench.measured import Entry, Figures, Span
from tfvolta.bench.result import BenchResult
from tfvolta.report.style import heading, make_console, new_table

_NOTHING = "-"


def print_result(result: BenchResult, console: Optional[Console] = None) -> None:
    """Prints everything that a person wants to know at once."""
    console = make_console(console)
    sizes = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.sizes.items())
    console.print(f"{result.model}: {result.description}; {sizes}")
    seeds = ", ".join(map(str, result.seeds))
    console.print(f"{result.rounds} rounds of {result.steps} steps, seeds {seeds}, data: {result.data}")
    for stage in dict.fromkeys(entry.stage for entry in result.entries):
        heading(console, stage or "Measured")
        _print_figures([entry for entry in result.entries if entry.stage == stage], console)
    for entry in result.entries:
        if entry.figures is None:
            console.print(f"{entry.name}: {entry.ending.value}: {entry.reason}")
        elif entry.figures.noise.words:
            console.print(f"{entry.name}: {entry.figures.noise.words}")
    if result.comparisons:
        heading(console, "Compared")
        for comparison in result.comparisons:
            console.print(_compared(comparison))
    if result.gates:
        heading(console, "Gates")
        for gate in result.gates:
            console.print(_gated(gate))
    heading(console, "Method")
    for sentence in result.method:
        console.print(f"  {sentence}")
    load = result.load
    console.print(
        f"  Load average {load.get('before')} before, {load.get('after')} after, on {load.get('processors')}."
    )


def _print_figures(entries: list[Entry], console: Console) -> None:
    measured = [entry for entry in entries if entry.figures is not None]
    if not measured:
        return
    table = new_table("", *(entry.name for entry in measured))
    for name, show in _ROWS:
        cells = [show(entry.figures) for entry in measured if entry.figures is not None]
        if any(cell != _NOTHING for cell in cells):
            table.add_row(name, *cells)
    console.print(table)
    figures = [entry.figures for entry in measured if entry.figures is not None]
    for name, reasons in (("MFU", [f.mfu_unknown for f in figures]), ("Energy", [f.energy_unknown for f in figures])):
        for reason in dict.fromkeys(filter(None, reasons)):
            console.print(f"{name}: {reason}")


def _span(span: Span, digits: str, scale: float = 1.0) -> str:
    low, high = format(scale * span.low, digits), format(scale * span.high, digits)
    return f"{format(scale * span.estimate, digits)} ({low} to {high}, {100 * span.confidence:.0f} %)"


def _optional(value: Optional[float], digits: str, scale: float = 1.0, unit: str = "") -> str:
    return _NOTHING if value is None else f"{format(scale * value, digits)}{unit}"


def _rate(figures: Figures) -> str:
    return _span(figures.examples_per_second, ",.1f")


def _losses(figures: Figures) -> str:
    """The curve of the first seed, and where the others ended."""
    curves = [[_NOTHING if loss is None else f"{loss:.4g}" for loss in curve] for curve in figures.losses]
    if not curves or not curves[0]:
        return _NOTHING
    first = curves[0]
    shown = first if len(first) <= 4 else [first[0], first[len(first) // 2], first[-1]]
    others = f" (other seeds: {', '.join(curve[-1] for curve in curves[1:])})" if len(curves) > 1 else ""
    return f"{' > '.join(shown)}{others}"


_ROWS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("examples/s", _rate),
    ("of", lambda f: f"{f.unit}, {f.examples_per_step} a step on {f.replicas} device{'s' * (f.replicas > 1)}"),
    ("step ms", lambda f: _span(f.step_seconds, ".3g", 1000)),
    ("step spread ms", lambda f: f"{1000 * f.step_seconds_mad:.2g} (n {f.n})"),
    ("epoch s", lambda f: _span(f.epoch_seconds, ".4g")),
    ("start s", lambda f: _optional(f.start_seconds, ".1f")),
    ("first epoch s", lambda f: _optional(f.first_epoch_seconds, ".2f")),
    ("compilation s", lambda f: _optional(f.compile_seconds, ".2f")),
    ("peak GPU MiB", lambda f: _optional(f.device_peak_bytes, ",.0f", 2**-20)),
    ("peak host MiB", lambda f: _optional(f.host_peak_bytes, ",.0f", 2**-20)),
    ("waiting for data", lambda f: _optional(f.input_share, ".0f", 100, " %")),
    ("loss", _losses),
    ("MFU", lambda f: _NOTHING if f.mfu is None else f"{100 * f.mfu:.1f} % of {f.mfu_of}"),
    ("J/example", lambda f: _optional(f.joules_per_example, ".3g")),
    ("noise", lambda f: f"{100 * f.noise.spread:.1f} % spread{_drift(f)}"),
)


def _drift(figures: Figures) -> str:
    noise = figures.noise
    return "" if noise.drift is None else f", {100 * noise.drift:+.1f} % drift (p {noise.drift_p:.2g})"


def _compared(comparison: Comparison) -> str:
    verdict = "WIN" if comparison.wins else "NO WIN"
    return f"{comparison.treated} against {comparison.reference}: {verdict}. {_why(comparison)}"


def _why(comparison: Any) -> str:
    memory = [
        f"peak {name} memory {ratio:.3f} times"
        for name, ratio in (("GPU", comparison.device_peak), ("host", comparison.host_peak))
        if ratio is not None
    ]
    time = f"epoch time {_span(comparison.epoch_time, '.3f')} times"
    sentences = [*comparison.why, time, *memory]
    return "; ".join(sentences) + f" (n {comparison.n} pairs)."


def _gated(gate: Gate) -> str:
    if gate.comparison is None:
        return f"{gate.stage}: {'REFUSED: ' if gate.passes is False else ''}{gate.reason}"
    verdict = "PASSES" if gate.passes else "REFUSED"
    efficiency = "" if gate.efficiency is None else f" Scaling efficiency {100 * gate.efficiency:.1f} %."
    return f"{gate.stage} against {gate.reference}: {verdict}. {_why(gate.comparison)}{efficiency}"
