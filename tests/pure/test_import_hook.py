"""The import hook tells of a module after its body ran, whoever imported it and in whatever way."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from tfvolta.script.import_hook import AfterImport


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package on the path that is removed again."""
    folder = tmp_path / "hooked_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("BODY_RAN = True\n")
    (folder / "part.py").write_text("import hooked_package\nSEEN = hooked_package.BODY_RAN\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "hooked_package"
    for name in ("hooked_package", "hooked_package.part"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "statement", ["import {0}", "import {0}.part", "from {0} import part", "from {0}.part import SEEN"]
)
def test_tells_once_after_the_body(package: str, statement: str) -> None:
    told: list[tuple[str, bool]] = []
    hook = AfterImport({package: lambda module: told.append((module.__name__, module.BODY_RAN))})
    hook.install()
    try:
        exec(statement.format(package), {})
        importlib.import_module(package)
    finally:
        hook.remove()
    assert told == [(package, True)]
    assert hook not in sys.meta_path


def test_tells_of_a_module_that_is_there_already(package: str) -> None:
    importlib.import_module(package)
    told: list[ModuleType] = []
    hook = AfterImport({package: told.append})
    hook.install()
    hook.remove()
    assert told == [sys.modules[package]]


def test_a_missing_module_still_raises_its_own_error() -> None:
    hook = AfterImport({"no_such_module_here": lambda module: None})
    hook.install()
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
            importlib.import_module("no_such_module_here")
    finally:
        hook.remove()


def test_the_loader_keeps_its_type_and_data(package: str) -> None:
    hook = AfterImport({package: lambda module: None})
    hook.install()
    try:
        module = importlib.import_module(package)
    finally:
        hook.remove()
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert b"BODY_RAN" in module.__spec__.loader.get_data(module.__file__)


def test_an_error_of_the_listener_reaches_the_importer(package: str) -> None:
    def refuse(module: ModuleType) -> None:
        raise ValueError("refused by the plan")

    hook = AfterImport({package: refuse})
    hook.install()
    try:
        with pytest.raises(ValueError, match="refused by the plan"):
            importlib.import_module(package)
    finally:
        hook.remove()


def test_a_script_that_is_run_by_path_is_heard(package: str, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text("import hooked_package\n")
    code = f"""
        import runpy, sys
        sys.path.insert(0, {str(tmp_path)!r})
        from tfvolta.script.import_hook import AfterImport
        hook = AfterImport({{"hooked_package": lambda module: print("told", module.__name__)}})
        hook.install()
        runpy.run_path({str(script)!r}, run_name="__main__")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["told", "hooked_package"]
