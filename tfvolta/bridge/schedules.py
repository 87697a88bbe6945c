"""Learning-rate schedules of Keras, made again with all their rates multiplied; the classes stay Keras's own."""

from __future__ import annotations

from typing import Any, Optional

# Arguments that are learning rates, by class. The rest are steps, decay factors and shares of the first rate.
_RATES = {
    "ExponentialDecay": ("initial_learning_rate",),
    "InverseTimeDecay": ("initial_learning_rate",),
    "PolynomialDecay": ("initial_learning_rate", "end_learning_rate"),
    "CosineDecay": ("initial_learning_rate", "warmup_target"),
    "CosineDecayRestarts": ("initial_learning_rate",),
    "PiecewiseConstantDecay": ("values",),
}
SCALED = tuple(_RATES)


def scaled(schedule: Any, factor: float) -> Optional[Any]:
    """A schedule of the same class with every rate times a factor; None for a class that is not Keras's.

    Args:
        schedule: A ``LearningRateSchedule`` of any Keras.
        factor: What the rates are multiplied with.
    """
    names = _RATES.get(type(schedule).__name__)
    if names is None or type(schedule).__module__.split(".")[0] not in ("keras", "tf_keras"):
        return None
    config = dict(schedule.get_config())
    for name in names:
        config[name] = _times(config.get(name), factor)
    return type(schedule).from_config(config)


def _times(value: Any, factor: float) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [_times(item, factor) for item in value]
    return float(value) * factor
