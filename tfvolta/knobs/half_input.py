"""Features that are cast to float16 on the host, so that half the bytes travel to the device."""

from __future__ import annotations

from typing import Any

from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.input import InputKnob
from tfvolta.outcome import Outcome, Status

AUTO = "auto"


class HalfInput(InputKnob):
    """Casts features to float16 on the host where every layer that takes them casts them to float16 first.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "half_input"
    keys = ("input.half",)
    techniques = ("K6", "M8", "P1")
    line = "dataset.map(lambda x, y: (tf.cast(x, tf.float16), y), num_parallel_calls=tf.data.AUTOTUNE)"

    def value(self, config: Any) -> Any:
        return config.get("input.half") or None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        policy = config.get("mixed_precision.policy")
        if policy != "mixed_float16":
            status = Status.NOT_APPLICABLE if value == AUTO else Status.NO_EFFECT
            said = f"Under the policy {policy or 'of the script'} no layer is known to cast its input to float16."
            return Forecast(Status.APPLIED if policy is None else status, said)
        return Forecast(Status.APPLIED, "Features that every layer casts to float16 reach the device as float16.")

    def seen(self, value: Any, state: Any, context: Context) -> Outcome:
        observed = {"float16_features": state.half}
        left = context.saved.get(self.name) or ""
        if state.half:
            stays = f" What stays as it is: {left}." if left else ""
            return Outcome(Status.APPLIED, f"{state.half} parts of the features are float16.{stays}", observed)
        said = f"No feature is cast on the host: {left or 'none is float16 in the data set'}."
        if value == AUTO:
            return Outcome(Status.NOT_APPLICABLE, said, observed)
        return Outcome(Status.NO_EFFECT, said, observed, f"remove {self.keys[0]}, or set it to auto")
