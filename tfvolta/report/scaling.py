"""A scaling estimate in the terminal."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tfvolta.report.style import fields, heading, make_console, new_table


def print_scaling(estimate: Mapping[str, Any], console: Optional[Console] = None) -> None:
    """Prints what ``tfvolta estimate scaling`` found.

    Args:
        estimate: As it is printed with ``--json``.
        console: Where to; standard output when None.
    """
    console = make_console(console)
    console.print(Text(f"Scaling of {estimate['gradients']['title']} on {estimate['machine']}", style="bold"))
    fields(console, _inputs(estimate))
    heading(console, "GPUs")
    _points(console, estimate["points"])
    heading(console, "Algorithm")
    for line in estimate["algorithm"]:
        _line(console, f"{_gpus(line['gpus'])}: {line['reason']}")
    heading(console, f"What would help on {_gpus(estimate['points'][-1]['gpus'])}")
    for change in estimate["what_if"]:
        remark = f" ({change['remark']})" if change["remark"] else ""
        gain = f"+{change['gain_points']:.1f} points to {change['efficiency_percent']:.1f} %"
        _line(console, f"{change['setting']}: {gain}{remark}")
    _line(console, _rest(estimate["points"][-1]))
    heading(console, "Error")
    _line(console, estimate["error"])


def _line(console: Console, text: str) -> None:
    console.print(Padding(Text(text), (0, 0, 0, 2), expand=False))


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count > 1 else ''}"


def _inputs(estimate: Mapping[str, Any]) -> list[tuple[str, str]]:
    gradients, settings = estimate["gradients"], estimate["settings"]
    shape = "" if gradients["structure"] else "; layers unknown, taken as equal"
    pairs = [
        ("gradients", f"{gradients['parameters']:,} parameters, {gradients['bytes'] / 1e6:,.1f} MB as float32{shape}"),
        ("one GPU", f"{estimate['pass_ms']:.4g} ms a pass" + _batch(estimate["batch"])),
        ("reduced", ", ".join(f"{name} {_word(value)}" for name, value in settings.items() if value is not None)),
    ]
    if estimate["network"]:
        pairs.append(("between", estimate["network"]))
    return pairs


def _batch(batch: Optional[float]) -> str:
    return "" if batch is None else f" of {batch:g} examples"


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _points(console: Console, points: list[Mapping[str, Any]]) -> None:
    with_rate = any(point["examples_per_second"] is not None for point in points)
    columns = ["GPUs", "step ms", "reduce ms", "exposed ms", "waiting ms", "effic. %"]
    table = new_table(*columns, *(["examples/s"] if with_rate else []))
    for column in table.columns:
        column.justify = "right"
    for point in points:
        machines = point["machines"]
        inside = "" if machines == 1 else f" = {machines} x {point['gpus'] // machines}"
        cells = [f"{point['gpus']}{inside}", f"{point['step_ms']:,.1f}"]
        cells += [f"{point['communication_ms']:,.2f}", f"{point['exposed_communication_ms']:,.2f}"]
        cells += [f"{point['waiting_ms']:,.2f}", f"{point['efficiency_percent']:.1f}"]
        table.add_row(*cells, *([f"{point['examples_per_second']:,.0f}"] if with_rate else []))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _rest(point: Mapping[str, Any]) -> str:
    """What no communication setting changes."""
    step = point["step_ms"]
    exposed, waiting = point["exposed_communication_ms"] / step, point["waiting_ms"] / step
    return (
        f"Of the step, {100 * exposed:.1f} % is communication that nothing hides and {100 * waiting:.1f} % waiting for "
        "the slowest GPU, which no setting of communication changes."
    )
