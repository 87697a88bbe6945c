"""What a script's source says, and scripts that cannot be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfvolta.errors import ConfigError
from tfvolta.script.source import check_script, layers_named_in


def test_names_of_constructed_layers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from keras import layers as L\nx = L.LSTM(4)(L.Dense(2)(y))\nGRU = 1\n")
    names = layers_named_in(str(script))
    assert {"LSTM", "Dense"} <= names
    assert "GRU" not in names


@pytest.mark.parametrize("content", [b"def broken(:\n", b"\x00\x01", "naïve = (".encode("latin-1")])
def test_a_script_that_does_not_parse_names_nothing(tmp_path: Path, content: bytes) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(content)
    assert layers_named_in(str(script)) == frozenset()


def test_missing_script_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        check_script(str(tmp_path / "none.py"))
    with pytest.raises(ConfigError, match="a directory"):
        check_script(str(tmp_path))
