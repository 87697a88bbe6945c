"""A plan for the terminal."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tfvolta.plan import Plan, Step

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


def _row(step: Step) -> list[str]:
    forecast = step.forecast
    colour = _COLOURS.get(forecast.status.value, "default")
    message = forecast.message + (f" (if {forecast.condition})" if forecast.condition else "")
    value = json.dumps(step.to_json()["value"], default=str)
    return [
        step.knob.phase.label,
        f"{escape(step.knob.name)}\n[dim]{escape(value)}[/dim]",
        escape(step.origin),
        f"[{colour}]{forecast.status.value}[/{colour}]\n{escape(message)}",
    ]


def print_plan(plan: Plan, console: Any = None) -> None:
    """Prints the steps in the order in which they will be done, then what is refused and why."""
    console = console or Console(soft_wrap=False)
    console.print(f"Machine: {_machine(plan)}", style="bold", markup=False)
    table = Table(show_lines=True, expand=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("setting and value", ratio=3, overflow="fold")
    table.add_column("from", ratio=3, overflow="fold")
    table.add_column("what will happen", ratio=6, overflow="fold")
    for step in plan.steps:
        table.add_row(*_row(step))
    console.print(table)
    for title, problems in (("Cannot work", plan.refusals), ("Environment says otherwise", _only_reported(plan))):
        if problems:
            console.print(f"\n{title}:", style="bold red" if title == "Cannot work" else "bold yellow")
            for problem in problems:
                console.print(str(problem), markup=False, highlight=False)
    console.print("\nRefused." if plan.refusals else "\nThis plan can be applied.", style="bold")


def _only_reported(plan: Plan) -> tuple[Any, ...]:
    return tuple(problem for problem in plan.contradictions if problem not in plan.refusals)
