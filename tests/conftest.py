"""Rules that hold for whole folders of tests."""

from __future__ import annotations

import importlib.abc
import os
import pathlib
import sys
from typing import Any, Iterator, Sequence

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


def pytest_collection_modifyitems(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    """Refuses to go on when collecting tests/pure alone has imported TensorFlow at module level."""
    if items and all(PURE in item.path.parents for item in items):
        loaded = sorted(FORBIDDEN & set(sys.modules))
        if loaded:
            raise pytest.UsageError(f"collecting tests/pure imported {', '.join(loaded)}")
