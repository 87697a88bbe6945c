"""What can be told of a training script from its source, without running it."""

from __future__ import annotations

import ast
import difflib
import os

from tfvolta.errors import ConfigError, Problem


def check_script(path: str) -> None:
    """Refuses a script that cannot be read.

    Raises:
        ConfigError: It does not exist, is a directory, or cannot be opened.
    """
    received = None
    if not os.path.exists(path):
        received = "no such file"
    elif os.path.isdir(path):
        received = "a directory"
    elif not os.access(path, os.R_OK):
        received = "a file that may not be read"
    if received:
        raise ConfigError(
            "The script cannot be run.",
            [
                Problem(
                    where=path,
                    expected="a Python script",
                    received=received,
                    fix=_near(path) or "give the path of the training script",
                )
            ],
        )


def _near(path: str) -> str:
    """The script beside it that was probably meant; empty where there is none of a name like it."""
    folder, name = os.path.split(path)
    try:
        names = [each for each in os.listdir(folder or ".") if each.endswith(".py")]
    except OSError:
        return ""
    found = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {os.path.join(folder, found[0])}?" if found else ""


def layers_named_in(path: str) -> frozenset[str]:
    """Names that a script's source calls, such as ``LSTM`` in ``layers.LSTM(64)``; empty where it does not parse."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "attr", None) or getattr(function, "id", None)
            if isinstance(name, str):
                names.add(name)
    return frozenset(names)
