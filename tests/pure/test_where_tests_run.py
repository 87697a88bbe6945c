"""The tables of what runs on which stack name tests that exist."""

from __future__ import annotations

import ast
import fnmatch
import pathlib
from importlib.metadata import PackageNotFoundError
from typing import Mapping, Optional

import pytest

from tests.slow import ON_KERAS3_ALONE, ON_TF_KERAS, runs_on, stack

TESTS = pathlib.Path(__file__).parents[1]
FILES = [path for folder in ("tensorflow", "processes", "gpu") for path in sorted((TESTS / folder).glob("test_*.py"))]


def names_of(path: pathlib.Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@pytest.mark.parametrize("table", [ON_TF_KERAS, ON_KERAS3_ALONE], ids=["tf_keras", "keras3"])
def test_each_pattern_finds_tests(table: Mapping[str, tuple[str, ...]]) -> None:
    missing = []
    for pattern, tests in table.items():
        names = [name for path in FILES if fnmatch.fnmatchcase(path.name, pattern) for name in names_of(path)]
        # Parameters are not known here: such a pattern is as good as its part before them.
        missing += [(pattern, each) for each in tests if not fnmatch.filter(names, each.split("[")[0])]
    assert not missing


def test_guards_of_private_parts_run_on_every_stack() -> None:
    guards = [path for path in FILES if path.stem.endswith("_privates")]
    assert len(guards) > 10
    for name in ("keras3", "tf_keras", "keras2"):
        assert all(runs_on(name, path.name, f"{test}[sgd]") for path in guards for test in names_of(path))


def test_parameters_count_only_where_a_pattern_has_them() -> None:
    assert runs_on("tf_keras", "test_optimizers.py", "test_what_a_stack_lacks_is_refused_before_training[Muon]")
    assert not runs_on("tf_keras", "test_optimizers.py", "test_every_optimizer_of_the_stack_trains[test_what_a]")
    assert not runs_on("tf_keras", "test_launch.py", "test_signals_are_passed_on[2-130]")
    name = "test_only_the_chief_leaves_files"
    found = [
        runs_on("keras2", "test_checkpoint.py", f"{name}[{kind}]") for kind in ("multi_worker_mirrored", "horovod")
    ]
    assert found == [False, True]


def test_keras3_runs_all_and_keras2_nearly_all() -> None:
    names = [(path.name, name) for path in FILES for name in names_of(path)]
    assert all(runs_on("keras3", *pair) for pair in names)
    shares = [sum(runs_on(name, *pair) for pair in names) / len(names) for name in ("keras2", "tf_keras")]
    assert shares[0] > 0.9 and shares[1] < 1 / 3


@pytest.mark.parametrize(
    ("found", "asked", "expected"),
    [("2.21.0", "1", "tf_keras"), ("2.21.0", "", "keras3"), ("2.15.1", "1", "keras2"), (None, "1", "tf_keras")],
)
def test_the_stack_is_known_without_tensorflow(
    found: Optional[str], asked: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setenv("TF_USE_LEGACY_KERAS", asked)
    monkeypatch.setattr("tests.slow.version", version)
    assert stack() == expected
