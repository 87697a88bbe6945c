"""``tfvolta configs``: the configs that come with the package; ``tfvolta:NAME`` names one."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("configs", help="list the configs that come with tfvolta", description=__doc__)
    parser.add_argument("name", nargs="?", help="print this one, such as default, instead of the list")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def describe(text: str) -> str:
    """What a config says of itself: the comment at its top, up to a blank line, without an editor's directive."""
    lines: list[str] = []
    for line in text.splitlines():
        comment = line.lstrip("#").strip()
        if not line.startswith("#") or (lines and not comment):
            break
        if not comment.startswith("yaml-language-server:"):
            lines.append(comment)
    return " ".join(lines).strip()


def _text(name: str) -> str:
    """The text of an embedded config.

    Raises:
        ConfigError: There is none of that name.
    """
    from tfvolta.config.files import find_source, read_text
    from tfvolta.errors import ConfigError, Problem

    source = find_source(name, None, {}, "name")
    text = source if isinstance(source, Problem) else read_text(source, "name")
    if isinstance(text, Problem):
        raise ConfigError(f"There is no config {name}.", [text])
    return text


def run(arguments: argparse.Namespace) -> int:
    """Prints the list, or one config.

    Raises:
        ConfigError: There is no config of that name.
    """
    from tfvolta.config.files import TEMPLATE_PREFIX, template_names

    if arguments.name is not None:
        name = arguments.name if arguments.name.startswith(TEMPLATE_PREFIX) else TEMPLATE_PREFIX + arguments.name
        text = _text(name)
        print(json.dumps({"name": name, "text": text}, indent=2) if arguments.json else text.rstrip())
        return 0
    listed = {name: describe(_text(name)) for name in template_names()}
    if arguments.json:
        print(json.dumps([{"name": name, "description": text} for name, text in listed.items()], indent=2))
    else:
        _print(listed)
    return 0


def _print(listed: dict[str, str]) -> None:
    from rich.text import Text

    from tfvolta.report.style import make_console, new_table

    console = make_console()
    table = new_table("config", "for")
    for name, description in listed.items():
        table.add_row(Text(name, style="bold"), Text(description or "-"))
    console.print(table)
    console.print()
    console.print(Text("Use one with --config NAME, or as a base with `extends: NAME` in a file of yours."))
