"""Data of one's own: what an .npz file must hold."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from tfvolta.bench.given import arrays, check, is_function
from tfvolta.errors import ConfigError


def saved(folder: pathlib.Path, **parts: object) -> str:
    """A file of arrays."""
    path = folder / "data.npz"
    np.savez(path, **parts)
    return str(path)


def test_one_input_is_an_array_and_several_go_by_name(tmp_path: pathlib.Path) -> None:
    features, labels = arrays(saved(tmp_path, x=np.ones((8, 3)), y=np.ones(8)), 4)
    assert features.shape == (8, 3) and labels.shape == (8,)
    features, labels = arrays(saved(tmp_path, source=np.ones((8, 3)), target=np.ones((8, 2)), y=np.ones(8)), 8)
    assert set(features) == {"source", "target"}


def test_files_that_cannot_be_used_are_refused(tmp_path: pathlib.Path) -> None:
    for parts, said in (
        ({"x": np.ones((8, 3))}, "an array y"),
        ({"y": np.ones(8)}, "an array y, and x"),
        ({"x": np.ones((7, 3)), "y": np.ones(8)}, "as many rows"),
        ({"x": np.ones((3, 3)), "y": np.ones(3)}, "at least one batch of 4 rows"),
        ({"x": np.array([None] * 8), "y": np.ones(8)}, "numpy.savez"),
    ):
        with pytest.raises(ConfigError, match=said):
            arrays(saved(tmp_path, **parts), 4)
    other = tmp_path / "other.npz"
    other.write_bytes(b"no zip")
    with pytest.raises(ConfigError, match=r"numpy\.savez"):
        arrays(str(other), 4)


def test_sources_are_told_apart(tmp_path: pathlib.Path) -> None:
    assert is_function("module:function") and not is_function("C:data.npz")
    check("module:function")
    check(saved(tmp_path, x=np.ones(1)))
    with pytest.raises(ConfigError, match="exists"):
        check(str(tmp_path / "missing.npz"))
    with pytest.raises(ConfigError, match="FILE"):
        check("data.csv")
