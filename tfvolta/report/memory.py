"""A memory estimate in the terminal."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tfvolta.report.style import fields, heading, make_console, new_table

_KINDS = (
    ("weights", "weights", "as stored, in float32 also under a mixed policy"),
    ("optimizer", "optimiser", "slots and counters"),
    ("casts", "casts", "copies of weights in the type that is computed in"),
    ("activations", "activations", "what the backward pass needs of the layers"),
    ("gradients", "loss, gradients", "at the worst moment; updates come after activations are gone"),
    ("recurrent", "recurrent", "what cuDNN keeps of recurrent layers, and its workspace"),
    ("workspace", "workspace", "XLA's, as an allowance"),
    ("scratch", "convolutions", "scratch memory of one, a guess: cuDNN's choice shows in training"),
    ("reduction", "all-reduce", "gradients packed between GPUs"),
)


def print_memory(content: Mapping[str, Any], most_layers: int, console: Optional[Console] = None) -> None:
    """Prints what ``tfvolta estimate memory`` found.

    Args:
        content: As it is printed with ``--json``.
        most_layers: Heavy layers to show.
        console: Where to; standard output when None.
    """
    console = make_console(console)
    estimate = content["estimate"]
    title = f"Memory of {content['model']} on one GPU, batch {estimate['batch']}"
    console.print(Text(title, style="bold"))
    fields(console, _about(content))
    heading(console, "At the worst moment of a step")
    table = new_table("", "MiB", "")
    for key, name, remark in _KINDS:
        if estimate[key]:
            table.add_row(name, f"{estimate[key] / 2**20:,.0f}", remark)
    table.add_row("peak", f"{estimate['peak'] / 2**20:,.0f}", f"± {estimate['error_percent']} %, as the allocator says")
    if estimate["scratch_bound"]:
        limit = f"if a convolution takes all of its limit of {estimate['scratch_bound'] / 2**20:,.0f} MiB"
        table.add_row("at most", f"{estimate['peak_bound'] / 2**20:,.0f}", limit)
    table.add_row("on the card", f"{estimate['device'] / 2**20:,.0f}", "with CUDA's context and libraries")
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    _refined(console, content.get("refined"))
    if estimate["unknown_tensors"]:
        _line(
            console, f"{estimate['unknown_tensors']} tensors have a size that is known in training only: not counted."
        )
    if content["card"]:
        _card(console, content["card"], estimate)
    _layers(console, estimate["layers"], most_layers)
    other = content["other"]
    word = "with" if other["compiled"] else "without"
    _line(console, f"The same {word} XLA: {other['peak'] / 2**20:,.0f} MiB.")


def _about(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    step = "compiled by XLA" if content["estimate"]["compiled"] else "not compiled"
    pairs = [
        ("model", f"{content['class']}, {content['parameters']:,} parameters, {content['stack']}"),
        ("computes in", ", ".join(content["compute_dtypes"])),
        ("step", f"{step}; traced, not run"),
    ]
    if content["guessed"]:
        pairs.append(("sizes", "dimensions that the data leave open are those of the first batch"))
    return pairs


def _refined(console: Console, refined: Optional[Mapping[str, Any]]) -> None:
    if not refined:
        return
    if "total_bytes" not in refined:
        _line(console, f"XLA's own figure: none, {refined['reason']}.")
        return
    text = f"XLA's own figure: {refined['total_bytes'] / 2**20:,.0f} MiB, compiled for {refined['device']}"
    if refined["device"].startswith("CPU"):
        text += "; a GPU's program is another one"
    _line(console, f"{text} ({refined['seconds']:g} s).")


def _card(console: Console, card: Mapping[str, Any], estimate: Mapping[str, Any]) -> None:
    heading(console, f"On {card['name']} with {card['bytes'] / 2**20:,.0f} MiB")
    fits = "fits" if card["fits"] else "does not fit"
    doubt = "" if card["sure"] else ", within the error of the estimate"
    _line(console, f"Batch {estimate['batch']} {fits}{doubt}.")
    if card["largest_batch"] is not None:
        _line(console, f"Largest batch that is estimated to fit: {card['largest_batch']}.")


def _layers(console: Console, layers: Any, most: int) -> None:
    if not layers or not most:
        return
    heading(console, "Layers that hold most then")
    table = new_table("layer", "kind", "MiB", "share", "weights MiB")
    for layer in layers[:most]:
        held, weights = layer["held_bytes"] / 2**20, layer["weight_bytes"] / 2**20
        table.add_row(
            layer["layer"], layer["kind"], f"{held:,.1f}", f"{layer['share_percent']:.1f} %", f"{weights:,.1f}"
        )
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _line(console: Console, text: str) -> None:
    console.print(Padding(Text(text), (0, 0, 0, 2), expand=False))
