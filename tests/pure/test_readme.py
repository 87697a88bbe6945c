"""What the README shows works: its config loads, its files, make targets and commands exist."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.pure.sources import ROOT
from tfvolta.cli.main import COMMANDS, make_parser

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [line.strip().split("  #")[0].strip() for line in TEXT.splitlines() if line.startswith("    ")]


def test_the_config_of_the_readme_loads(tmp_path: pathlib.Path) -> None:
    from tfvolta.config import load_config

    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    path = tmp_path / "config.yaml"
    path.write_text(block)
    config = load_config(str(path))
    assert config.xla.jit == "auto" and config.monitor.throughput


def test_the_files_of_the_readme_exist() -> None:
    named = re.findall(r"\b(?:configs|docs|examples|constraints)/[\w./-]*", TEXT)
    assert named
    assert [name for name in named if not (ROOT / name.rstrip(".")).exists()] == []


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("tfvolta ")])
def test_the_commands_of_the_readme_parse(line: str) -> None:
    words = line.split()
    assert words[1] in COMMANDS
    assert make_parser(words[1]).parse_args(words[1:]).run


def test_the_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, flags=re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", "\n".join(LINES), flags=re.MULTILINE)) <= targets
    assert {"demo", "test"} <= targets


def test_the_python_of_the_readme_names_what_exists() -> None:
    import tfvolta

    blocks = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL))
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        compile(block, "README.md", "exec")
    for name in set(re.findall(r"tfvolta\.(\w+)", blocks)):
        assert getattr(tfvolta, name), name
    for name in set(re.findall(r"tfvolta\.callbacks\.(\w+)", blocks)):
        assert getattr(tfvolta.callbacks, name), name


def test_every_dependency_is_explained() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    optional = project.split("[project.optional-dependencies]")[1].split("[project.")[0]
    extras = re.findall(r"^([\w-]+) = \[", optional, re.M)
    core = re.findall(r'^    "([\w.-]+)', project.split("dependencies = [")[1].split("]")[0], re.M)
    assert len(extras) > 8 and len(core) == 4
    assert [name for name in [*extras, *core] if f"| {name} |" not in text and f"| `{name}` |" not in text] == []
