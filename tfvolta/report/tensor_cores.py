"""An audit of Tensor Core use in the terminal."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tfvolta.report.style import fields, heading, make_console, new_table


def print_tensor_cores(content: Mapping[str, Any], most_layers: int, console: Optional[Console] = None) -> None:
    """Prints what ``tfvolta estimate tensor-cores`` found.

    Args:
        content: As it is printed with ``--json``.
        most_layers: Layers to show.
        console: Where to; standard output when None.
    """
    console = make_console(console)
    audit = content["tensor_cores"]
    console.print(Text(f"Tensor Cores for {content['model']}, batch {audit['batch']}", style="bold"))
    each = audit["multiply_adds"] / max(1, audit["batch"])
    fields(
        console,
        [
            ("work", f"{each / 1e9:,.4g} G multiply-adds an example in the forward pass"),
            ("computes in", ", ".join(content["compute_dtypes"])),
            ("served well", f"{audit['served_percent']:.1f} % of multiply-adds"),
            ("served at all", f"{audit['usable_percent']:.1f} %, at reduced speed where dimensions are odd"),
            ("reachable", f"{audit['reachable_percent']:.1f} % with every change below"),
        ],
    )
    heading(console, "Layers by work")
    table = new_table("layer", "kind", "share", "m, n, k", "", "why", "change")
    for row in audit["rows"][:most_layers]:
        share = "?" if row["multiply_adds"] is None else f"{row['share_percent']:.1f} %"
        sizes = ", ".join(f"{size}" for size in row["dimensions"] or ())
        table.add_row(row["layer"], row["kind"], share, sizes, row["verdict"], row["reason"], row["change"])
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    hidden = len(audit["rows"]) - most_layers
    if hidden > 0:
        console.print(Padding(Text(f"and {hidden} more with less work: --layers {len(audit['rows'])}"), (0, 0, 0, 2)))
    if audit["unknown"]:
        console.print(Padding(Text(f"Not counted: {', '.join(audit['unknown'])}"), (0, 0, 0, 2)))
