"""The line that takes a setting back does so for every knob, whatever file gave it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pure.knob_table import ROWS
from tfvolta.config import load_config
from tfvolta.config.leaving_alone import left_alone
from tfvolta.knobs.base import Knob
from tfvolta.knobs.registry import knobs
from tfvolta.knobs.removal import removal

# These follow from strategy.kind: no line of their own takes them out.
_WITHOUT_A_LINE = ("cluster", "preflight", "first_all_reduce", "sharding", "uneven")


@pytest.mark.parametrize("knob", knobs(), ids=lambda knob: str(knob.name))
def test_the_line_takes_back_what_a_config_asks_for(knob: Knob, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(ROWS[knob.name].config))
    config = load_config(file)
    assert knob.value(config) is not None
    text = removal(knob, config)
    assert "--no-strict" in text and "run.strict: false" in text
    if knob.name in _WITHOUT_A_LINE:
        assert "--set" not in text
    else:
        line = text.partition("--set ")[2].partition(";")[0]
        assert knob.value(load_config(file, overrides=[line])) is None, line


def test_the_narrowest_line_comes_first() -> None:
    config = load_config("tfvolta:default", overrides=["xla.flags=[--xla_gpu_autotune_level=4]"])
    assert [line for line, _ in left_alone(config, "xla.jit")] == ["xla.jit=null", "xla=null"]
    assert [line for line, _ in left_alone(config, "xla.flags")] == ["xla.flags=[]", "xla=null"]
    with pytest.raises(AttributeError):
        list(left_alone(config, "xla.nothing"))
