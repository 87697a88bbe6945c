"""What a bench measured of one contender, as it is saved."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any, Optional

from pydantic import BeforeValidator, Field

from tfvolta.evidence.schema import Record
from tfvolta.evidence.values import JsonObject, Text
from tfvolta.measure.statistics import Interval


class Ending(str, enum.Enum):
    """How a contender ended."""

    MEASURED = "measured"
    REFUSED = "refused"
    CRASH = "crash"
    OUT_OF_MEMORY = "out of memory"
    TIMEOUT = "timeout"


def _finite(value: Any) -> Any:
    """A loss that is no finite number is none; a word for it comes from JSON, which has no NaN."""
    try:
        return value if math.isfinite(float(value)) else None
    except (TypeError, ValueError):
        return None


Loss = Annotated[Optional[float], BeforeValidator(_finite)]


class Span(Record):
    """An estimate with its interval.

    Attributes:
        confidence: What the interval really has.
    """

    estimate: float
    low: float
    high: float
    confidence: float

    @classmethod
    def of(cls, interval: Interval) -> Span:
        """From an interval."""
        return cls(**interval.to_json())


class Epoch(Record):
    """One epoch.

    Attributes:
        seconds: Of the whole epoch, with what callbacks do at its end.
        train_seconds: Until the loss of its last batch came from the device.
        place: Whose turn it was in its round, from 0; None for warm-up epochs.
        loss: Mean over the epoch; None where it was not finite.
        joules: Energy of the GPUs; None where nothing counts it.
    """

    epoch: int
    seconds: float = Field(gt=0)
    train_seconds: float = Field(gt=0)
    steps: int = Field(gt=0)
    loss: Loss = None
    joules: Optional[float] = None
    place: Optional[int] = None


class Lap(Record):
    """One process of a contender, from start to end.

    Attributes:
        seed: Of weights, dropout and the order of the data.
        start_seconds: From the start of the process to the compiled model: imports, devices, data.
        warmup: Epochs that do not count; the first holds tracing and compilation.
        epochs: Measured epochs, one a round.
        parameters: Of the model.
        after: What the process knows of itself after training.
        measurements: Of tfvolta's monitors: ``compilations``.
        evidence: File of its evidence; None for the untouched script.
    """

    seed: int
    start_seconds: Optional[float] = None
    warmup: tuple[Epoch, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    parameters: Optional[int] = None
    after: JsonObject = Field(default_factory=dict)
    measurements: JsonObject = Field(default_factory=dict)
    evidence: Optional[Text] = None


class Noise(Record):
    """How steady a contender was.

    Attributes:
        spread: Scaled median absolute deviation of epoch times over their median.
        drift: Change over all rounds, as a share of the median.
        drift_p: How often rounds without a drift look so; the exact test of Kendall.
        words: What to think of it; empty where there is nothing to say.
    """

    spread: float
    drift: Optional[float] = None
    drift_p: Optional[float] = None
    words: Text = ""


class Figures(Record):
    """Figures of a contender over all its laps; None where something was not or cannot be measured.

    Attributes:
        examples_per_step: Of all replicas.
        replicas: Devices that train in step.
        epoch_seconds: Median with its interval.
        epoch_seconds_mad: Scaled to a standard deviation.
        n: Epochs that were measured.
        first_epoch_seconds: Median; tracing and compilation included.
        compile_seconds: As the ledger of compilations counts it; else the first epoch less a usual one.
        device_peak_bytes: Of the device with the highest peak.
        input_share: Share of a step that waits for data.
        losses: Of each lap, epoch by epoch, warm-up included.
        mfu: Model FLOPs utilisation.
        mfu_unknown: Why it is not known.
        noise: How steady it was.
    """

    examples_per_step: int
    unit: str
    replicas: int
    n: int
    examples_per_second: Span
    epoch_seconds: Span
    epoch_seconds_mad: float
    step_seconds: Span
    step_seconds_mad: float
    start_seconds: Optional[float] = None
    first_epoch_seconds: Optional[float] = None
    compile_seconds: Optional[float] = None
    device_peak_bytes: Optional[int] = None
    host_peak_bytes: Optional[int] = None
    input_share: Optional[float] = None
    losses: tuple[tuple[Loss, ...], ...] = ()
    multiply_adds: Optional[int] = None
    mfu: Optional[float] = None
    mfu_of: Text = ""
    mfu_unknown: Text = ""
    joules_per_example: Optional[float] = None
    energy_unknown: Text = ""
    noise: Noise


class Entry(Record):
    """One contender.

    Attributes:
        stage: In which stage it was measured; empty without stages.
        words: As ``--against`` takes it.
        command: Of its process.
        reason: Why it was not measured.
        figures: None where nothing was measured.
    """

    name: Text
    stage: Text = ""
    words: Text
    command: tuple[Text, ...] = ()
    ending: Ending = Ending.MEASURED
    reason: Text = ""
    laps: tuple[Lap, ...] = ()
    figures: Optional[Figures] = None
