"""How reports look: words first, colour as an addition, plain text when piped."""

from __future__ import annotations

import re
import sys
from typing import Any, Optional, TextIO, cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tfvolta.outcome import Status
from tfvolta.report.verdict import WORDS

_TRAILING = re.compile(r"[ \t]+(?=\n)")

COLOURS = {
    Status.APPLIED: "green",
    Status.NO_EFFECT: "red",
    Status.LATE: "red",
    Status.NOT_APPLICABLE: "cyan",
    Status.UNVERIFIABLE: "yellow",
    Status.PENDING: "yellow",
}


class _Trimmed:
    """A stream without the blanks by which tables fill their lines: what is piped is compared, pasted and searched."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes whole lines, as a console does."""
        self._stream.write(_TRAILING.sub("", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_console(console: Optional[Console] = None, stream: Optional[TextIO] = None) -> Console:
    """A console on standard output, on another stream, or the given one. Width 80 where there is no terminal."""
    if console is not None:
        return console
    stream = stream or sys.stdout
    file = stream if stream.isatty() else cast(TextIO, _Trimmed(stream))
    return Console(file=file, highlight=False, markup=False, emoji=False)


def status_text(status: Status) -> Text:
    """The word for a status, in its colour."""
    return Text(WORDS[status], style=COLOURS[status])


def heading(console: Console, title: str) -> None:
    """A heading with a blank line before it."""
    console.print()
    console.print(Text(title, style="bold"))


def fields(console: Console, pairs: list[tuple[str, str]]) -> None:
    """Names and values in two columns; long values wrap inside theirs."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name, style="dim"), Text(value))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def new_table(*columns: str) -> Table:
    """A table without side borders, of which every column but the first may wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    return table


def problem_text(problem: object) -> Text:
    """A problem or its record: where it is, and below it what was expected, received, why, and the fix."""
    text = Text(f"{getattr(problem, 'where', '')}")
    for name in ("expected", "received", "why", "fix"):
        value = getattr(problem, name, "")
        if value:
            text.append(f"\n  {name + ':':<10}", style="dim")
            text.append(value)
    return text


def print_path(console: Console, name: str, path: str) -> None:
    """A path in one line, however long it is, so that it can be copied."""
    console.print(Text.assemble((f"  {name}  ", "dim"), path), soft_wrap=True)
