"""An option that a command does not have: a slip, or one of the script's own that stands before the script."""

from __future__ import annotations

import argparse
import difflib
import shlex
from typing import Sequence

from tfvolta.errors import ConfigError, Problem


def stray_option(parser: argparse.ArgumentParser, words: Sequence[str], left: Sequence[str]) -> ConfigError:
    """The error, with the line that was probably meant.

    Args:
        parser: Of the whole command line, with the command in it.
        words: The command line, without the program's name.
        left: The words that no option or argument takes.
    """
    stray = left[0]
    (action,) = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    command = next((word for word in words if word in action.choices), "")
    chosen = action.choices.get(command, parser)
    options = [name for each in chosen._actions for name in each.option_strings if name.startswith("--")]
    takes_script = any(each.dest == "script" for each in chosen._actions)
    near = difflib.get_close_matches(stray.partition("=")[0], options, n=1, cutoff=0.7)
    name = f"tfvolta {command}".rstrip()
    why = fix = ""
    if near:
        fix = f"did you mean {near[0]}? {name} --help lists all"
    elif takes_script and stray.startswith("-"):
        why = "the script's own options stand after the script"
        fix = shlex.join(["tfvolta", *_moved(words, left)])
    else:
        fix = f"{name} --help lists all"
    problem = Problem("command line", f"an option or argument of {name}", stray, why, fix)
    return ConfigError(f"{name} cannot take {stray}.", [problem])


def _moved(words: Sequence[str], left: Sequence[str]) -> list[str]:
    """The command line with stray options, and the values behind them, at the end."""
    kept: list[str] = []
    moved: list[str] = []
    in_value = False
    for word in words:
        if word.startswith("-"):
            in_value = word in left
        elif word.endswith(".py"):
            in_value = False
        (moved if in_value else kept).append(word)
    return kept + moved
