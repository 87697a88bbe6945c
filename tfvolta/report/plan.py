"""A plan for the terminal."""

from __future__ import annotations

from typing import Any, Optional

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfvolta.knobs.removal import in_words
from tfvolta.plan import Plan, Step
from tfvolta.report.style import heading, make_console, problem_text
from tfvolta.report.words import in_lines

_ORIGIN = 28  # what a word of the second column may have in 80 columns
_COLOURS = {"APPLIED": "green", "NO_EFFECT": "red", "NOT_APPLICABLE": "dim", "UNVERIFIABLE": "yellow"}


def _machine(plan: Plan) -> str:
    facts = plan.facts
    names: dict[str, int] = {}
    for gpu in facts.gpus:
        capability = ".".join(map(str, gpu.compute_capability))
        label = f"{gpu.name} ({gpu.memory_mb / 1024:.0f} GiB, compute capability {capability})"
        names[label] = names.get(label, 0) + 1
    gpus = ", ".join(f"{count}x {name}" for name, count in names.items()) or "no GPU"
    version = f"TensorFlow {facts.tensorflow.version}" if facts.tensorflow else "TensorFlow not installed"
    return f"{gpus}; {facts.cpu.cores} cores; {version}; stack {facts.stack}"


def _row(step: Step) -> list[Text]:
    forecast = step.forecast
    message = forecast.message + (f" (if {forecast.condition})" if forecast.condition else "")
    value = in_words(step.to_json()["value"])
    return [
        Text(step.knob.phase.label),
        Text.assemble(
            step.knob.name, *([f"\n{value}"] if value else []), (f"\n{in_lines(step.origin, _ORIGIN)}", "dim")
        ),
        Text.assemble((forecast.status.value, _COLOURS.get(forecast.status.value, "default")), f"\n{message}"),
    ]


def print_plan(plan: Plan, console: Optional[Console] = None) -> None:
    """Prints the steps in the order in which they will be done, then what is refused and why."""
    console = make_console(console)
    console.print(Text(f"Machine: {_machine(plan)}", style="bold"))
    table = Table(show_lines=True, expand=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("setting, value, from", ratio=1, overflow="fold")
    table.add_column("what will happen", ratio=1, overflow="fold")
    for step in plan.steps:
        table.add_row(*_row(step))
    console.print(table)
    for title, problems in (("Cannot work", plan.refusals), ("Environment says otherwise", _only_reported(plan))):
        if problems:
            heading(console, f"{title}:")
            for problem in problems:
                console.print(problem_text(problem))
    console.print()
    console.print(Text("Refused." if plan.refusals else "This plan can be applied.", style="bold"))


def _only_reported(plan: Plan) -> tuple[Any, ...]:
    return tuple(problem for problem in plan.contradictions if problem not in plan.refusals)
