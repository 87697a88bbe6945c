"""Filling the last, smaller batch of an epoch up."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.knobs.base import Forecast
from tfvolta.knobs.drop_remainder import DropRemainder
from tfvolta.outcome import Status


class PadRemainder(DropRemainder):
    """Fills the last batch of an epoch up to the size of the others, so that XLA compiles one shape and no row is lost.

    Filled rows are copies with a weight that tells them apart; the model leaves them out of loss, gradients, metrics
    and the count of examples. Models that would see them, as through batch normalization, are refused.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "pad_remainder"
    keys = ("xla.remainder",)
    fix = (
        "give fit batches of one size: model.fit(tfvolta.data.padded_batches(dataset, model)), or leave the smaller "
        "batch out with xla.remainder: drop"
    )

    def value(self, config: Any) -> Optional[Any]:
        return True if config.get("xla.remainder") == "pad" else None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del value, facts, config
        return Forecast(
            Status.APPLIED,
            "Under tfvolta run the last, smaller batch of an epoch is filled up with rows that the model leaves out of "
            "loss and metrics; a script of your own gives fit tfvolta.data.padded_batches(dataset, model). "
            "A model with a part that sees all rows of a batch, as batch normalization does, is refused.",
        )
