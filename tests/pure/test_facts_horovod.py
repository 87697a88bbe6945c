"""The installed Horovod, read from its files: what it was compiled against, and why it cannot be used."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.pure.recorded_context import machine
from tfvolta.facts.description import describe
from tfvolta.facts.horovod import KNOWN, fault, read_horovod
from tfvolta.facts.schema import Facts, HorovodBuild, TensorFlowBuild

LIBRARY = "mpi_lib.cpython-311-x86_64-linux-gnu.so"


def site(folder: pathlib.Path, tensorflow: str | None = "2.15.1", library: bool = True) -> list[str]:
    """A folder of packages with a Horovod in it; its code would fail if it ran."""
    package = folder / "horovod"
    (package / "tensorflow").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    if tensorflow is not None:
        (package / "metadata.json").write_text(json.dumps({"tensorflow": tensorflow, "dummy": "none"}))
    if library:
        (package / "tensorflow" / LIBRARY).write_text("")
    return [str(folder)]


def with_horovod(build: HorovodBuild | None, tensorflow: str = "2.15.1") -> Facts:
    return machine().model_copy(update={"horovod": build, "tensorflow": TensorFlowBuild(version=tensorflow)})


def described(build: HorovodBuild | None, tensorflow: str = "2.15.1") -> str:
    return "\n".join(describe(with_horovod(build, tensorflow)))


def test_a_build_is_read_and_nothing_is_imported(tmp_path: pathlib.Path) -> None:
    notes: list[str] = []
    build = read_horovod({"horovod": "0.28.1"}, notes, site(tmp_path))
    assert build == HorovodBuild(version="0.28.1", tensorflow="2.15.1", has_library=True)
    assert not notes and fault(with_horovod(build)) is None


def test_no_horovod_is_no_build(tmp_path: pathlib.Path) -> None:
    assert read_horovod({}, [], [str(tmp_path)]) is None


def test_metadata_that_cannot_be_read_is_noted(tmp_path: pathlib.Path) -> None:
    notes: list[str] = []
    build = read_horovod({"horovod": "0.28.1"}, notes, site(tmp_path, tensorflow=None))
    assert build is not None and build.tensorflow is None and build.has_library
    assert "metadata.json cannot be read (FileNotFoundError)" in notes[0]
    assert fault(with_horovod(build)) is None  # nothing speaks against it


@pytest.mark.parametrize(
    ("build", "tensorflow", "words"),
    [
        (None, "2.21.0", ("it is not installed", KNOWN, "--no-build-isolation")),
        ({"tensorflow": None, "has_library": False}, "2.15.1", ("without its TensorFlow part", "isolation")),
        ({"tensorflow": "2.15.1"}, "2.21.0", ("compiled against TensorFlow 2.15.1", "TensorFlow 2.21.0 is installed")),
    ],
)
def test_what_cannot_be_used_is_said_with_the_command(build: Any, tensorflow: str, words: tuple[str, ...]) -> None:
    built = None if build is None else HorovodBuild(version="0.28.1", **build)
    problem = fault(with_horovod(built, tensorflow))
    assert problem is not None
    for word in (*words, "HOROVOD_WITH_TENSORFLOW=1"):
        assert word in str(problem)


def test_the_description_names_the_build_and_what_is_wrong() -> None:
    good = HorovodBuild(version="0.28.1", tensorflow="2.15.1")
    assert "horovod  0.28.1, compiled against TensorFlow 2.15.1" in described(good)
    assert "unusable: horovod 0.28.1 compiled against" in described(good, "2.21.0")
    assert "horovod" not in described(None)
