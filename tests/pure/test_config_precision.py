"""Loss-scale bounds in the config: what fits together, and what is refused when it is loaded."""

from __future__ import annotations

import pytest

from tests.pure.machines import machine
from tfvolta.bridge.scale_bounds import ScaleBounds
from tfvolta.config import load_config
from tfvolta.errors import ConfigError
from tfvolta.knobs.loss_scale import _settings
from tfvolta.knobs.registry import knob


def scale(text: str) -> object:
    return load_config(mixed_precision={}, overrides=[f"mixed_precision.loss_scale={text}"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{floor: 8, ceiling: 4}", ["floor 8 is above ceiling 4"]),
        ("{initial: 2, floor: 8}", ["initial 2 is below floor 8"]),
        ("{initial: 2048, ceiling: 1024}", ["initial 2048 is above ceiling 1024"]),
        ("{initial: 16, floor: 8, ceiling: 4}", ["floor 8 is above ceiling 4", "initial 16 is above ceiling 4"]),
        ("{initial: 0}", ["received: 0", "above 0"]),
        ("{initial: -2}", ["received: -2"]),
        ("{initial: .inf}", ["finite number"]),
        ("{floor: 0, ceiling: -1, hysteresis: 0}", ["3 problems", "received: 0", "received: -1"]),
        ("{fixed: -8}", ["received: -8"]),
    ],
)
def test_a_scale_that_cannot_be_is_refused_at_load(text: str, says: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        scale(text)
    assert all(each in str(caught.value) for each in says)


@pytest.mark.parametrize(
    ("text", "first", "bounds"),
    [
        ("{}", 32768.0, ScaleBounds(1.0, None, 1)),
        ("{ceiling: 1024}", 1024.0, ScaleBounds(1.0, 1024.0, 1)),
        ("{floor: 65536}", 65536.0, ScaleBounds(65536.0, None, 1)),
        ("{initial: 0.25}", 0.25, ScaleBounds(0.25, None, 1)),
        ("{initial: 8, floor: 8, ceiling: 8, hysteresis: 3}", 8.0, ScaleBounds(8.0, 8.0, 3)),
    ],
)
def test_the_first_scale_and_the_bounds(text: str, first: float, bounds: ScaleBounds) -> None:
    value = knob("loss_scale").value(scale(text))
    assert value is not None and value["initial"] == first
    assert _settings(value).bounds == bounds


def test_the_forecast_tells_the_rules() -> None:
    config = scale("{initial: 1024, floor: 16, ceiling: 4096, hysteresis: 2}")
    forecast = knob("loss_scale").forecast(knob("loss_scale").value(config), machine("cpu"), config)
    assert "up to 4096" in forecast.message and "down to 16" in forecast.message
    assert "after the first one since it last grew" in forecast.message
