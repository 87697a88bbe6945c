"""A ladder's result, printed for a person."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tfvolta.ladder.gain import FASTER, SLOWER, Gain
from tfvolta.ladder.result import LadderResult, RungResult
from tfvolta.ladder.rung_run import RungRun
from tfvolta.measure.statistics import median
from tfvolta.report.style import fields, heading, make_console, new_table, print_path

_COLOURS = {FASTER: "green", SLOWER: "red"}


def print_ladder(result: LadderResult, path: str, console: Optional[Console] = None) -> None:
    """Prints figures of each rung, what it gained, what was set and why, what went wrong, and where the files are.

    Args:
        result: Of the ladder.
        path: Its file.
        console: Where to print; standard output when absent.
    """
    console = make_console(console)
    about = result.about
    console.print(Text(f"{about['script']} under {about['config']}, one section after another", style="bold"))
    fields(console, [("machine", f"{about['machine']}; {about['stack']}"), ("repeats", _repeats(result))])
    heading(console, "Steps")
    table = new_table("rung", "examples/s", "step ms", "first step s", "peak MiB", "loss", "of the one before")
    for each in result.rungs:
        if not each.idle:
            table.add_row(*_row(each))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    heading(console, "What each gained")
    fields(console, _gains(result))
    heading(console, "What was set, and why")
    added = [each for each in result.rungs if not each.idle]
    settings = [(each.rung.name, f"{one.knob}: {one.message}") for each in added for one in each.settings]
    fields(console, settings or [("nothing", "the config asks for nothing")])
    heading(console, "What went wrong")
    fields(console, _faults(result) or [("nothing", "")])
    heading(console, "Files")
    print_path(console, "ladder", path)


def _repeats(result: LadderResult) -> str:
    most = max((run.repeat for each in result.rungs for run in each.runs), default=0)
    return f"{most}, the rungs in turns, every second time from the last to the first"


def _row(result: RungResult) -> list[Any]:
    good = [run for run in result.runs if not run.reason]
    peak = _middle(good, "peak_bytes")
    unit = "" if peak is None else " GPU" if good[0].on_gpu else " host"
    name = f"{'+ ' if result.rung.added else ''}{result.rung.name}"
    step = _middle(good, "step_seconds_median")
    return [
        Text(name),
        Text(_shown(_middle(good, "examples_per_second"))),
        Text(_shown(None if step is None else 1000 * step)),
        Text(_shown(_middle(good, "first_step_seconds"))),
        Text("-" if peak is None else f"{peak / 2**20:,.0f}{unit}"),
        Text(_loss(good)),
        Text("" if result.gain is None else _ratio(result.gain), style=_colour(result.gain)),
    ]


def _gains(result: LadderResult) -> list[tuple[str, str]]:
    lines = [(each.rung.name, each.gain.text(each.steps)) for each in result.rungs if each.gain is not None]
    lines += [(each.rung.name, f"adds nothing here: {each.idle}") for each in result.rungs if each.idle]
    lines += [(name, f"adds nothing here: {why}") for name, why in result.skipped.items()]
    if result.whole is not None and len(lines) > 1:
        lines.append(("altogether", result.whole.text(result.rungs[0].steps)))
    return lines or [("nothing", "there is no rung but the plain one")]


def _faults(result: LadderResult) -> list[tuple[str, str]]:
    lines = []
    for each in result.rungs:
        for text, count in each.faults.items():
            often = f" ({count} of {len(each.runs)} runs)" if len(each.runs) > 1 else ""
            lines.append((each.rung.name, f"{text}{often}"))
    return lines


def _ratio(gain: Gain) -> str:
    if gain.ratio is None:
        return gain.verdict
    return f"{gain.ratio.estimate:.3g} ({gain.ratio.low:.3g} to {gain.ratio.high:.3g})"


def _colour(gain: Optional[Gain]) -> str:
    return "" if gain is None else _COLOURS.get(gain.verdict, "yellow")


def _loss(runs: Sequence[RungRun]) -> str:
    words = [run.loss for run in runs if isinstance(run.loss, str)]
    return words[0] if words else _shown(_middle(runs, "loss"))


def _middle(runs: Sequence[RungRun], name: str) -> Optional[float]:
    known = [getattr(run, name) for run in runs]
    known = [value for value in known if value is not None and not isinstance(value, str)]
    return median(known) if known else None


def _shown(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
