"""``tfvolta configs``: the configs that come with the package, and those that runs have had."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
from typing import Any, Optional, Sequence

# What comes with the package is shown by name; these words are commands.
ACTIONS = ("list", "diff", "rollback", "save")
_SHOW = "show"
_DIRECTORY = "runs"


class _Parser(argparse.ArgumentParser):
    """Takes the name of a config where a command could stand: ``tfvolta configs default``."""

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Optional[argparse.Namespace] = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(args or ())
        first = next((number for number, word in enumerate(words) if not word.startswith("-")), None)
        if first is not None and words[first] not in (*ACTIONS, _SHOW):
            words.insert(first, _SHOW)
        return super().parse_known_args(words, namespace)


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    summary = "list the configs that come with tfvolta, or go through those of runs"
    plain = subparsers.add_parser("configs", help=summary, description=__doc__)
    parser = _Parser(
        prog=plain.prog,
        description=f"{__doc__} With a NAME, such as default, it prints that config.",
        usage=f"{plain.prog} [NAME | {' | '.join(ACTIONS)}] [--json]",
        allow_abbrev=False,
    )
    subparsers.choices["configs"] = parser
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, name=None)
    actions = parser.add_subparsers(title="commands", metavar="", prog=plain.prog, parser_class=argparse.ArgumentParser)
    show = actions.add_parser(_SHOW)
    show.add_argument("name")
    _add_list(actions.add_parser("list", help="what runs have applied, with their figures, newest first"))
    _add_diff(actions.add_parser("diff", help="values that differ between two configs, with their origins"))
    _add_rollback(actions.add_parser("rollback", help="write a config file back to what it was in a run"))
    _add_save(actions.add_parser("save", help="save the config of a run, or of a search, as a template"))
    for each in actions.choices.values():
        each.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    show.set_defaults(run=run)


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", metavar="DIR", default=_DIRECTORY, help=f"folder of runs (default: {_DIRECTORY})")


def _add_list(parser: argparse.ArgumentParser) -> None:
    from tfvolta.cli.configs_history import run_list

    _add_runs(parser)
    parser.add_argument("--script", metavar="FILE", help="only runs of this training script")
    parser.set_defaults(run=run_list)


def _add_diff(parser: argparse.ArgumentParser) -> None:
    from tfvolta.cli.configs_history import run_diff

    what = "a run's id or folder, a YAML file, or tfvolta:NAME"
    parser.add_argument("a", metavar="A", help=what)
    parser.add_argument("b", metavar="B", help=what)
    _add_runs(parser)
    parser.set_defaults(run=run_diff)


def _add_rollback(parser: argparse.ArgumentParser) -> None:
    from tfvolta.cli.configs_history import run_rollback

    latest = "the latest completed one under another text of the same file when left out"
    parser.add_argument("id", metavar="RUN", nargs="?", help=f"a run's id or folder; {latest}")
    _add_runs(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the change and write nothing")
    parser.add_argument("--force", action="store_true", help="also write over a file that was changed by hand")
    parser.set_defaults(run=run_rollback)


def _add_save(parser: argparse.ArgumentParser) -> None:
    from tfvolta.cli.configs_save import run_save

    parser.add_argument("name", metavar="NAME", help="of the template; becomes DIR/NAME.yaml")
    source = "a run's id or folder, or a search's tune.json or folder"
    parser.add_argument("--from", dest="source", metavar="RUN|TUNE", required=True, help=source)
    _add_runs(parser)
    parser.add_argument("--to", metavar="DIR", default="configs", help="folder of templates (default: configs)")
    parser.add_argument("--force", action="store_true", help="write over a template of that name")
    parser.set_defaults(run=run_save)


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
        near = difflib.get_close_matches(name.rpartition(":")[2], ACTIONS, n=1, cutoff=0.6)
        text = dataclasses.replace(text, fix=f"did you mean: tfvolta configs {near[0]}") if near else text
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
