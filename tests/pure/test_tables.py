"""Tables in documents: what stands there follows from the committed results, and wrong comments are refused."""

from __future__ import annotations

import json
import pathlib
import runpy
from typing import Any

import pytest

from tests.pure.sources import ROOT

TABLES: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "tables.py"))
ROWS = [
    {"name": "lstm/a", "rate": 1000.4, "loss": [3.0, 2.5]},
    {"name": "lstm/a", "rate": 1002.0, "loss": [3.0, 2.5]},
    {"name": "lstm/b", "rate": 2002.4},
]
SAID = """columns: {model: "", rate: ",.0f", of a: ".2f", loss: ".1f"}
parts:
  - source: results.jsonl
    labels: {lstm/b: {model: new}, lstm/a: {model: old}}
    values: {rate: rate, loss: loss.-1}
    ratios: {of a: {value: rate, over: {lstm/: lstm/a}}}
  - source: others.json
    published: true
    rows: tables.0.rows
    key: "{gpus}"
    values: {model: card, rate: rate}
"""


def document(folder: pathlib.Path, said: str = SAID, end: str = "<!-- end -->") -> pathlib.Path:
    """A document with one table, and results beside it."""
    (folder / "results.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    (folder / "others.json").write_text(json.dumps({"tables": [{"rows": [{"gpus": 8, "card": "V100", "rate": 9510}]}]}))
    path = folder / "README.md"
    path.write_text(f"# Title\n\n<!-- table\n{said}-->\n{end}\n\nMore.\n")
    return path


def test_the_tables_of_the_documents_are_current() -> None:
    assert [str(path.relative_to(ROOT)) for path in TABLES["stale"]()] == [], "run: python tools/tables.py"
    assert len(list(TABLES["documents"]())) >= 3


def test_a_table_follows_from_its_results(tmp_path: pathlib.Path) -> None:
    path = document(tmp_path)
    assert TABLES["stale"](tmp_path) == [path]
    text = TABLES["written"](path)
    assert [line for line in text.splitlines() if line.startswith("|")] == [
        "| model | rate | of a | loss |",
        "|---|---|---|---|",
        "| new | 2,002 | 2.00 | - |",
        "| old | 1,000, 1,002 | 1.00 | 2.5 |",
        "| V100 (published, not measured here) | 9,510 | - | - |",
    ]
    assert text.startswith("# Title\n") and text.endswith("\nMore.\n")
    path.write_text(text)
    assert TABLES["stale"](tmp_path) == [] and TABLES["written"](path) == text


def test_a_figure_that_was_changed_by_hand_is_found(tmp_path: pathlib.Path) -> None:
    path = document(tmp_path)
    path.write_text(TABLES["written"](path).replace("| new | 2,002", "| new | 9,999"))
    assert TABLES["stale"](tmp_path) == [path]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("results.jsonl", "nothing.jsonl", "no such file"),
        ("lstm/b: {model: new}", "gru: {model: new}", "no row 'gru'"),
        ("key: \"{gpus}\"", "key: \"{cards}\"", "cards"),
        ("tables.0.rows", "tables.1.rows", "no rows at tables.1.rows"),
        ("over: {lstm/: lstm/a}", "over: {lstm/: lstm/c}", "lstm/c"),
        ("values: {rate: rate, loss", "values: {speed: rate, loss", "no column speed"),
        ("rate: \",.0f\"", "rate, a second", "has no format"),
        ("parts:", "parts: [", "no YAML"),
        ("columns:", "titles:", "columns and parts"),
    ],
)  # fmt: skip
def test_a_comment_that_cannot_be_used_is_refused(tmp_path: pathlib.Path, before: str, after: str, said: str) -> None:
    assert before in SAID
    with pytest.raises(ValueError, match=said.replace("{", "\\{")):
        TABLES["written"](document(tmp_path, SAID.replace(before, after)))


def test_a_table_without_an_end_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="end"):
        TABLES["written"](document(tmp_path, end=""))
