"""What a bench measured, as it is saved, printed as JSON and read again."""

from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from pydantic import BeforeValidator, Field, ValidationError

from tfvolta.errors import EvidenceError, Problem
from tfvolta.evidence.schema import Record
from tfvolta.evidence.values import JsonObject, Text
from tfvolta.facts.schema import Facts
from tfvolta.measure.statistics import Interval

FILE_NAME = "bench.json"
SCHEMA_VERSION = 1


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
        place: Whose turn it was in its round, from 0; None for warm-up epochs.
        loss: Mean over the epoch; None where it was not finite.
        joules: Energy of the GPUs; None where nothing counts it.
    """

    epoch: int
    seconds: float = Field(gt=0)
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


class Band(Record):
    """The last loss of the baseline over its seeds, and where that of a sound run lies.

    Attributes:
        values: The baseline's last losses.
        treated: Those of the other.
        treated_mean: Their mean.
        seeds: Seeds that both ran.
        interval: Prediction interval of the mean; None with fewer than two seeds.
        holds: Whether the other lies in it; None where it is not known.
        words: In a sentence.
    """

    values: tuple[Loss, ...] = ()
    treated: tuple[Loss, ...] = ()
    treated_mean: Optional[float] = None
    seeds: tuple[int, ...] = ()
    interval: Optional[Span] = None
    holds: Optional[bool] = None
    words: Text = ""


class Comparison(Record):
    """Two contenders, round by round.

    Attributes:
        throughput: Examples a second, ratio of the pairs.
        epoch_time: Seconds of an epoch, ratio of the pairs.
        by_seed: Median ratio of throughput in each pair of processes.
        n: Pairs.
        device_peak: Ratio of peak memory; None without GPUs.
        host_peak: The same of the host.
        band: Where the loss lies.
        wins: Whether it is a win.
        why: What speaks for it or against it, a sentence each.
    """

    treated: Text
    reference: Text
    throughput: Span
    epoch_time: Span
    by_seed: tuple[float, ...]
    n: int
    device_peak: Optional[float] = None
    host_peak: Optional[float] = None
    band: Band
    wins: bool
    why: tuple[Text, ...]


class Gate(Record):
    """One step of the way from the untouched script to several machines.

    Attributes:
        stage: What is added: ``one device``, ``one node``, ``several nodes``.
        passes: None where this machine has no such stage.
        comparison: With the stage before; None where it could not be made.
        efficiency: Gain over what as many more devices could give.
        reason: Why there is no comparison.
    """

    stage: str
    treated: Text = ""
    reference: Text = ""
    passes: Optional[bool] = None
    comparison: Optional[Comparison] = None
    efficiency: Optional[float] = None
    reason: Text = ""


class BenchResult(Record):
    """One bench.

    Attributes:
        created: ISO time, UTC.
        command: The command line that does it again.
        sizes: Of the workload.
        method: How figures and intervals are made, in words.
        load: Load average of the host before and after, and its processors.
    """

    schema_version: Literal[1] = 1
    kind: Literal["bench"] = "bench"
    created: str
    command: tuple[Text, ...]
    model: str
    description: Text
    sizes: dict[str, int]
    data: Text = "synthetic"
    steps: int
    warmup_epochs: int
    rounds: int
    seeds: tuple[int, ...]
    method: tuple[Text, ...]
    facts: Optional[Facts] = None
    load: JsonObject = Field(default_factory=dict)
    entries: tuple[Entry, ...]
    comparisons: tuple[Comparison, ...] = ()
    gates: tuple[Gate, ...] = ()

    def write(self, folder: Path) -> Path:
        """Writes it into a folder; the file is whole at every moment.

        Raises:
            OSError: It cannot be written.
        """
        path, unfinished = folder / FILE_NAME, folder / f".{FILE_NAME}"
        unfinished.write_text(json.dumps(self.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)
        return path

    @classmethod
    def read(cls, path: Path) -> BenchResult:
        """Reads one.

        Raises:
            EvidenceError: It is missing, or something else.
        """
        path = path / FILE_NAME if path.is_dir() else path
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, ValidationError) as error:
            problem = Problem(str(path), "a file that tfvolta bench wrote", str(error).splitlines()[0])
            raise EvidenceError("The result of the bench cannot be read.", [problem]) from error
