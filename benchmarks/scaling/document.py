"""Writes into docs/estimate_scaling.md what is generated there: the commands' output, the links and the validation.

    python benchmarks/scaling/document.py

Generated parts lie behind a comment that says what belongs there, and end with ``<!-- end -->``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import sys
from unittest import mock

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1])]

from report import documented, links  # noqa: E402

from tfvolta.cli.main import main as command  # noqa: E402

DOCUMENT = FOLDER.parents[1] / "docs" / "estimate_scaling.md"
_PART = re.compile(r"<!-- (command: [^>]*|links|validation) -->\n(?:.*?<!-- end -->\n)?", re.DOTALL)


def _output(line: str) -> list[str]:
    """What a command prints, as an indented block."""
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        command(shlex.split(line)[1:])
    printed = [f"    {text}".rstrip() for text in heard.getvalue().splitlines()]
    return ["", f"    $ {line}", *printed, ""]


def _generated(match: re.Match[str]) -> str:
    what = match[1]
    if what == "links":
        lines = ["", *links(), ""]
    elif what == "validation":
        lines = ["", *documented(json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))), ""]
    else:
        lines = _output(what.partition(": ")[2])
    return "\n".join([f"<!-- {what} -->", *lines, "<!-- end -->"]) + "\n"


def document(text: str) -> str:
    """The document with its generated parts made anew."""
    return _PART.sub(_generated, text)


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
