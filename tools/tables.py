"""Writes the tables of measured figures into documents from the committed results, and checks that they are current.

    python tools/tables.py            # writes
    python tools/tables.py --check    # 1 where a table is not what its results give

A table lies between ``-->`` and ``<!-- end -->`` behind a comment that starts with ``<!-- table`` and says, as YAML,
what is in it:

    columns: {model: "", "examples/s": ",.0f", peak GiB: ".1f"}   # title: format of numbers
    parts:
      - source: results/2026-12-01_h200.json     # JSON or JSON lines, beside the document; or FILE.py:function
        rows: rows                               # where the rows lie in it; left out for JSON lines
        key: "{name}"                            # which rows belong together
        labels: {"lstm/kernels": {model: LSTM}}  # in order: these keys only, and cells in words
        values: {"examples/s": examples_per_second, "peak GiB": peak_gib}
        ratios: {"against": {value: examples_per_second, over: {lstm/: lstm/keras3}}}
      - source: ../scaling/published_v100.json
        published: true                          # said in the first cell: nobody measured it here

Several rows of one key stand in one cell, with commas; a figure that a row does not have is ``-``.
"""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "benchmarks/*/README.md", "docs/*.md")
PUBLISHED = " (published, not measured here)"
_TABLE = re.compile(r"<!-- table\n(?P<said>.*?)-->\n(?P<old>.*?)<!-- end -->", re.DOTALL)
_ABSENT = "-"


class TableError(ValueError):
    """A table whose comment or results cannot be used."""


def documents(root: Path = ROOT) -> Iterator[Path]:
    """Documents that have tables."""
    for pattern in DOCUMENTS:
        for path in sorted(root.glob(pattern)):
            if "<!-- table\n" in path.read_text(encoding="utf-8"):
                yield path


def written(path: Path) -> str:
    """A document with its tables made anew.

    Raises:
        TableError: A table cannot be made.
    """

    def anew(match: re.Match[str]) -> str:
        lines = table(_parsed(match["said"], path), path.parent)
        return f"<!-- table\n{match['said']}-->\n\n{chr(10).join(lines)}\n\n<!-- end -->"

    text = path.read_text(encoding="utf-8")
    if text.count("<!-- table\n") != len(_TABLE.findall(text)):
        raise TableError(f"{path}: a table without <!-- end --> behind it")
    return _TABLE.sub(anew, text)


def _parsed(text: str, path: Path) -> Mapping[str, Any]:
    try:
        found = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise TableError(f"{path}: the comment of a table is no YAML: {error}") from error
    if not isinstance(found, dict) or not {"columns", "parts"} <= set(found):
        raise TableError(f"{path}: a table says columns and parts")
    unclear = [str(title) for title, how in found["columns"].items() if not isinstance(how, str)]
    if unclear:
        raise TableError(f"{path}: {unclear[0]!r} has no format; titles with a comma stand in quotes")
    return found


def table(said: Mapping[str, Any], folder: Path) -> list[str]:
    """The lines of one table.

    Args:
        said: What its comment says.
        folder: That of its document.

    Raises:
        TableError: Results are missing, or have no such rows.
    """
    columns: Mapping[str, str] = said["columns"]
    lines = [_line(list(columns)), "|" + "---|" * len(columns)]
    for part in said["parts"]:
        lines += [_line(cells) for cells in _cells(part, columns, folder)]
    return lines


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(part: Mapping[str, Any], columns: Mapping[str, str], folder: Path) -> Iterator[list[str]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in _rows(part, folder):
        groups.setdefault(_key(part, row), []).append(row)
    labels = part.get("labels") or {key: {} for key in groups}
    for key, words in labels.items():
        if key not in groups:
            raise TableError(f"{part['source']}: no row {key!r}; there are {', '.join(sorted(groups))}")
        found = dict(words or {})
        for title, where in (part.get("values") or {}).items():
            found.setdefault(title, _joined([_value(row, where) for row in groups[key]], _format(columns, title)))
        for title, ratio in (part.get("ratios") or {}).items():
            found.setdefault(title, _ratio(ratio, key, groups, _format(columns, title)))
        unknown = set(found) - set(columns)
        if unknown:
            raise TableError(f"{part['source']}: no column {', '.join(sorted(unknown))}")
        cells = [str(found.get(title, _ABSENT)) for title in columns]
        if part.get("published"):
            cells[0] += PUBLISHED
        yield cells


def _format(columns: Mapping[str, str], title: str) -> str:
    if title not in columns:
        raise TableError(f"no column {title}; there are {', '.join(columns)}")
    return columns[title]


def _rows(part: Mapping[str, Any], folder: Path) -> list[Mapping[str, Any]]:
    """The rows of a part.

    Raises:
        TableError: There are none.
    """
    name, _, function = str(part["source"]).partition(":")
    path = folder / name
    if not path.is_file():
        raise TableError(f"{name}: no such file beside the document in {folder}")
    if function:
        return list(_called(path, function))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    found = _value(json.loads(text), part.get("rows", "rows"))
    if not isinstance(found, list) or not found:
        raise TableError(f"{name}: no rows at {part.get('rows', 'rows')}")
    return found


def _called(path: Path, function: str) -> Any:
    """What a function of a file returns: rows made out of results."""
    spec = importlib.util.spec_from_file_location(f"table_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)()


def _key(part: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    try:
        return str(part.get("key", "{name}")).format(**row)
    except (KeyError, IndexError) as error:
        raise TableError(f"{part['source']}: a row has no {error}; it has {', '.join(row)}") from error


def _value(row: Any, where: str) -> Any:
    """What lies at a dotted path, or None; numbers count places in lists, from the end where negative."""
    found = row
    for name in str(where).split("."):
        if isinstance(found, list) and re.fullmatch(r"-?\d+", name):
            found = found[int(name)] if -len(found) <= int(name) < len(found) else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found


def _joined(values: list[Any], how: str) -> str:
    """Values of the rows of one key; equal ones once."""
    shown = [_shown(value, how) for value in values if value is not None]
    return ", ".join(dict.fromkeys(shown)) or _ABSENT


def _shown(value: Any, how: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return format(value, how or ",.4g")


def _ratio(said: Mapping[str, Any], key: str, groups: Mapping[str, list[Mapping[str, Any]]], how: str) -> str:
    """The median of a key's rows over that of another key."""
    other = next((str(reference) for start, reference in said["over"].items() if key.startswith(start)), "")
    if other not in groups:
        raise TableError(f"no row {other!r} to set {key} against")
    ours, theirs = (_median(groups[name], said["value"]) for name in (key, other))
    return _ABSENT if ours is None or not theirs else _shown(ours / theirs, how)


def _median(rows: list[Mapping[str, Any]], where: str) -> Optional[float]:
    known = [float(value) for value in (_value(row, where) for row in rows) if value is not None]
    return statistics.median(known) if known else None


def stale(root: Path = ROOT) -> list[Path]:
    """Documents whose tables are not what their results give."""
    return [path for path in documents(root) if written(path) != path.read_text(encoding="utf-8")]


def main(words: list[str]) -> int:
    """Writes or checks."""
    try:
        found = stale()
        if "--check" in words:
            for path in found:
                print(f"{path.relative_to(ROOT)}: its tables are old; run: python tools/tables.py")
            return 1 if found else 0
        for path in found:
            path.write_text(written(path), encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: written")
    except TableError as error:
        print(f"tables: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
