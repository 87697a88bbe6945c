"""Two runs compared, printed for a person."""

from __future__ import annotations

from typing import Optional

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tfvolta.report.comparison import Comparison, Difference
from tfvolta.report.style import fields, heading, make_console, new_table
from tfvolta.report.verdict import verdict
from tfvolta.report.words import in_lines, shown

_TITLES = {
    "run": "Run",
    "config": "Config",
    "facts": "Machine",
    "versions": "Versions",
    "outcomes": "Outcomes",
    "measurements": "Measurements",
    "fits": "Fits",
}
_MOST_ROWS = 40
_LONGEST_KEY = 34  # two values have room beside it in 80 columns


def print_comparison(comparison: Comparison, console: Optional[Console] = None) -> None:
    """Prints what differs between two runs, section by section, and says so when nothing does."""
    console = make_console(console)
    runs = [("A", comparison.a), ("B", comparison.b)]
    fields(console, [(name, f"{run.run_id}: {verdict(run)}") for name, run in runs])
    if not comparison.differs:
        console.print()
        console.print(Text("Nothing differs but names and times.", style="bold green"))
        return
    for name, found in comparison.sections.items():
        if found:
            heading(console, f"{_TITLES[name]}: {len(found)} difference{'s' * (len(found) > 1)}")
            _print_section(console, _headline(name, found), len(found))
    same = [title.lower() for name, title in _TITLES.items() if not comparison.sections[name]]
    if same:
        console.print()
        console.print(Text(f"The same in both: {', '.join(same)}."))


def _headline(name: str, found: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """What a person looks at first: how settings ended, and figures of whole runs rather than of epochs."""
    if name == "outcomes":
        chosen = [difference for difference in found if difference.key.endswith(".status")]
    elif name == "measurements":
        chosen = [difference for difference in found if not any(part.isdigit() for part in _parts(difference.key))]
    else:
        return found
    return tuple(chosen) or found


def _parts(key: str) -> list[str]:
    return key.replace("[", ".").replace("]", "").split(".")


def _print_section(console: Console, found: tuple[Difference, ...], number: int) -> None:
    with_ratio = any(difference.ratio is not None for difference in found)
    table = new_table("", "A", "B", *(["B / A"] if with_ratio else []))
    for difference in found[:_MOST_ROWS]:
        table.add_row(
            Text(in_lines(difference.key, _LONGEST_KEY, "  ")),
            _cell(difference.a, difference.origin_a),
            _cell(difference.b, difference.origin_b),
            *([Text(f"{difference.ratio:.3f}" if difference.ratio is not None else "")] if with_ratio else []),
        )
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    hidden = number - min(len(found), _MOST_ROWS)
    if hidden:
        console.print(Text(f"  and {hidden} more; --json gives all", style="dim"))


def _cell(value: object, origin: str) -> Text:
    text = Text(shown(value, 120))
    if origin:
        text.append(f" ({origin})", style="dim")
    return text
