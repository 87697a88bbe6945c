"""The package's own source files as syntax trees, for tests that read them."""

from __future__ import annotations

import ast
import functools
import pathlib
from typing import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tfvolta"


@functools.cache
def tree_of(path: pathlib.Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def python_files(*folders: str) -> list[pathlib.Path]:
    """Python files below some folders of the repository."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def part_of(path: pathlib.Path) -> str:
    """Module or sub-package in which a file lies, such as ``config``; ``tfvolta`` for the package's own __init__."""
    name = path.relative_to(PACKAGE).with_suffix("").parts[0]
    return "tfvolta" if name == "__init__" else name


def module_of(path: pathlib.Path) -> str:
    """Dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, path: pathlib.Path) -> list[str]:
    """Dotted names that an import statement names; relative ones made absolute."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = module_of(path).split(".")
        package = package if path.name == "__init__.py" else package[:-1]
        base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported; ``if TYPE_CHECKING`` does not."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
            continue
        yield node
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                waiting += getattr(node, name, [])
        for handler in getattr(node, "handlers", []):
            waiting += handler.body
