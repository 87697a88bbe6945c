"""Rules that hold for whole folders of tests."""

from __future__ import annotations

import gc
import importlib.abc
import os
import pathlib
import sys
from typing import Any, Iterator, Optional

import pytest

# TensorFlow's own allocator for CPUs waits ten seconds for memory before it says that there is none; the system's says
# it at once. Read when TensorFlow loads; processes that tests start inherit it.
# Source: tensorflow/core/common_runtime/mkl_cpu_allocator.h, tsl/framework/allocator_retry.cc
os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")

FORBIDDEN = frozenset({"tensorflow", "keras", "tf_keras", "tensorflow_addons", "horovod"})
PURE = pathlib.Path(__file__).parent / "pure"


class _Refusal(importlib.abc.MetaPathFinder):
    """Makes the import of TensorFlow fail as it would on a machine without it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.split(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(f"No module named {fullname!r} (tests/pure must not import it)", name=fullname)


@pytest.fixture(autouse=True)
def _without_tensorflow(request: pytest.FixtureRequest) -> Iterator[None]:
    """In tests/pure, importing TensorFlow or Keras is an error, installed or not."""
    if PURE not in request.path.parents:
        yield
        return
    refusal = _Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        yield
    finally:
        sys.meta_path.remove(refusal)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--share=2/4``: the second quarter of the files of a folder, so that several processes can divide it."""
    parser.addoption("--share", metavar="NUMBER/COUNT", default="1/1", help="run one part of the files of each folder")


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> Optional[bool]:
    """Leaves out the files of other shares; pytest does not ask about files named on the command line."""
    number, count = (int(part) for part in config.getoption("share").split("/"))
    if count == 1 or not collection_path.match("test_*.py"):
        return None
    # Neighbours in the alphabet are tests of one thing and take alike long: they are dealt out like cards.
    place = sorted(collection_path.parent.glob("test_*.py")).index(collection_path)
    return True if place % count != number - 1 else None


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps what runs on this stack; refuses to go on when tests/pure alone has imported TensorFlow."""
    pure = [item for item in items if PURE in item.path.parents]
    if items and len(pure) == len(items):
        loaded = sorted(FORBIDDEN & set(sys.modules))
        if loaded:
            raise pytest.UsageError(f"collecting tests/pure imported {', '.join(loaded)}")
        return
    from tests import slow

    stack = slow.stack()
    left = {
        item
        for item in items
        if not session.isinitpath(item.path) and not slow.runs_on(stack, item.path.name, item.name)
    }
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Lets go of iterators that are held by cycles while their threads can still run Python.

    While the interpreter ends they cannot, and TensorFlow waits for them: a process with a generator among its data
    ended minutes late.
    """
    gc.collect()
