"""The table of what runs on tf_keras names tests that exist."""

from __future__ import annotations

import ast
import fnmatch
import pathlib

import pytest

from tests.slow import EVERY, ON_TF_KERAS, is_tf_keras, runs_on_tf_keras

TESTS = pathlib.Path(__file__).parents[1]
FILES = [path for folder in ("tensorflow", "processes") for path in sorted((TESTS / folder).glob("test_*.py"))]


def names_of(path: pathlib.Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@pytest.mark.parametrize("pattern", ON_TF_KERAS)
def test_each_pattern_finds_tests(pattern: str) -> None:
    files = [path for path in FILES if fnmatch.fnmatchcase(path.name, pattern)]
    names = [name for path in files for name in names_of(path)]
    missing = [each for each in ON_TF_KERAS[pattern] if not fnmatch.filter(names, each)]
    assert files and not missing


def test_guards_of_private_parts_run_on_every_stack() -> None:
    guards = [path for path in FILES if path.stem.endswith("_privates")]
    assert len(guards) > 10
    assert all(runs_on_tf_keras(path.name, f"{name}[sgd]") for path in guards for name in names_of(path))


def test_parameters_are_no_part_of_a_pattern() -> None:
    assert runs_on_tf_keras("test_optimizers.py", "test_what_a_stack_lacks_is_refused_before_training[Muon]")
    assert not runs_on_tf_keras("test_optimizers.py", "test_every_optimizer_of_the_stack_trains[test_what_a]")
    assert not runs_on_tf_keras("test_launch.py", "test_signals_are_passed_on[2-130]")


def test_most_tests_run_once_for_each_bridge() -> None:
    names = [(path.name, name) for path in FILES for name in names_of(path) if "keras3" not in path.name]
    shared = [pair for pair in names if runs_on_tf_keras(*pair)]
    assert len(shared) < len(names) / 3
    assert EVERY == ("*",)


def test_the_stack_is_known_without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    assert not is_tf_keras()
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    for found, expected in (("2.21.0", True), ("2.15.1", False)):
        monkeypatch.setattr("tests.slow.version", lambda name, found=found: found)
        assert is_tf_keras() is expected
