"""Damaged text: whatever is in a file, only ConfigError leaves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.pure.config_case import ROOT, complete, one, problems_of, write
from tfvolta.config import load_config
from tfvolta.config.scalars import read_scalar, write_scalar

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


BAD_TEXTS = {
    "list": "- xla\n",
    "scalar": "just words\n",
    "number": "3\n",
    "open bracket": "xla: {flags: [--a\n",
    "open brace": "xla: {jit: off\n",
    "open quote": 'run: {directory: "runs}\n',
    "tab": "xla:\n\tjit: off\n",
    "indentation": "xla:\n    jit: off\n  flags: []\n",
    "two colons": "run: directory: runs\n",
    "no colon": "xla:\n  jit off\n  flags: []\n",
    "two documents": "run: {}\n---\nrun: {}\n",
    "undefined alias": "run: *there\n",
    "recursive alias": "run: &a [*a]\n",
    "python object": "run: {directory: !!python/object/apply:os.system [ls]}\n",
    "unknown tag": "run: {directory: !path runs}\n",
    "merge key": "run: {<<: {seed: 1}}\n",
    "list as key": "? [a, b]\n: 1\n",
    "control character": "run: {directory: a\x00b}\n",
    "escape": 'run: {directory: "\\q"}\n',
    "deep": "run: " + "[" * 300 + "]" * 300 + "\n",
    "very deep": "[" * 100_000 + "\n",
    "aliases of aliases": "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 8)}]\n" for a, b in zip("abcdefgh", "bcdefghi")),
    "numeric key": "1: 2\n",
    "null key": "~: 2\n",
    "directive": "%YAML 9.9\n---\nrun: 1\n",
    "bad directive": "%YAML x\n",
    "huge": "#" * (1 << 20) + "\nrun: {}\n",
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_malformed_text(name: str) -> None:
    found = problems_of(BAD_TEXTS[name])
    assert found
    for problem in found:
        assert complete(problem), problem
        assert problem.where.startswith("a.yaml:") or name == "huge"


def test_syntax_problems_name_the_line_and_the_cure() -> None:
    tab = one(BAD_TEXTS["tab"])
    assert tab.where == "a.yaml:2" and "spaces" in tab.fix
    assert "close the list" in one(BAD_TEXTS["open bracket"]).fix
    assert "quotes" in one(BAD_TEXTS["open quote"]).fix


def test_what_stands_before_broken_syntax_is_reported_too() -> None:
    found = problems_of("run: {}\nrun: {}\nxla: [\n")
    assert [problem.where for problem in found] == ["a.yaml:2: run", "a.yaml:4"]


def test_anchors_of_plain_values_work() -> None:
    write("devices:\n  gpu_threads: &n 2\n  inter_op_threads: *n\n")
    assert load_config("a.yaml").get("devices.inter_op_threads") == 2


def test_strange_line_ends_keep_line_numbers() -> None:
    assert one("run: {}\r\nxla:\r\n  jit: x\r\n").where == "a.yaml:3: xla.jit"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None),
        ("", None),
        ("null", None),
        ("Null", None),
        ("true", True),
        ("False", False),
        ("on", "on"),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.inf", float("-inf")),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
        ("inf", "inf"),
        ("nan", "nan"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    assert read_scalar(text) == value and type(read_scalar(text)) is type(value)
    if not isinstance(value, str):
        assert read_scalar(write_scalar(value)) == value


def mutations(text: str, count: int) -> Iterator[str]:
    """Damaged versions of a text, the same in every run."""
    chance = random.Random(20240229)
    pieces = [
        "\t",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        "#",
        "&a ",
        "*a",
        "!!str ",
        "!x ",
        "|",
        ">",
        "%",
        "@",
        "`",
        "? ",
        "<<: ",
        "\n",
        "  ",
        "\0",
        "\x85",
        "\u2028",
        "\ufeff",
        "\ud7ff",
        "null",
        "true",
        "-1",
        ".inf",
        "1e999",
        "extends: ",
        "---\n",
        "...\n",
        "\\",
        "0x",
        ",",
    ]
    for _ in range(count):
        damaged = text
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(damaged) + 1)
            width = chance.choice((0, 0, 1, 3, 20))
            middle = chance.choice(
                [chance.choice(pieces), chance.choice(pieces), chr(chance.randrange(0x20, 0x3000)), ""]
            )
            if chance.random() < 0.2:
                start = chance.randrange(len(damaged) + 1)
                middle = damaged[start : start + 40]
            damaged = damaged[:at] + middle + damaged[at + width :]
        yield damaged


def test_only_config_errors_leave() -> None:
    text = (ROOT / "tfvolta/config/templates/default.yaml").read_text(encoding="utf-8")
    text += "strategy: {kind: mirrored, devices: [GPU:0, &x 'GPU:1']}\nnccl: {}\n"
    refused = 0
    for damaged in mutations(text, 400):
        found = problems_of(damaged)
        refused += bool(found)
        assert all(complete(problem) for problem in found), (damaged, found)
    assert 100 < refused < 400


def test_only_config_errors_leave_overrides() -> None:
    for text in ("mixed_precision.loss_scale={initial: 2}", "devices.visible=[0, 1]", "run.directory='a'"):
        for damaged in mutations(text, 150):
            assert all(complete(problem) for problem in problems_of("", damaged)), damaged
