"""What a search for settings has found, as ``tune.json`` holds it: the schema that reports read."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic import Field

from tfvolta.evidence.schema import Record
from tfvolta.evidence.values import JsonObject, JsonValue

SCHEMA_VERSION = 1
FILE_NAME = "tune.json"

# measured: all steps that were asked for. stopped: slower than others after the steps of a rung, and ended there.
Ending = Literal[
    "measured",
    "stopped",
    "out of memory",
    "compile timeout",
    "hang",
    "crash",
    "refused",
    "loss left the band",
]
# gain: the interval of the ratio lies above 1 and the loss in its band. no gain: anything else that was measured.
Verdict = Literal["gain", "no gain", "loss left the band", "not measured"]


class Ratio(Record):
    """Throughput of one config over that of another, from pairs measured next to each other.

    Attributes:
        estimate: Median over the pairs; 1.25 is a quarter faster.
        low: Lower end of the interval.
        high: Upper end of it.
        confidence: Share of such intervals that hold the true value.
        pairs: Pairs of processes that were measured.
        method: The textbook method of the interval.
    """

    estimate: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)
    confidence: float = Field(gt=0, lt=1)
    pairs: int = Field(gt=0)
    method: str


class Measured(Record):
    """What one process measured.

    Attributes:
        settings: Values by config key, those that differ from the user's config alone; empty for the baseline.
        ending: How it ended.
        reason: Why, in a sentence; empty where it was measured to its end.
        seed: Seed of the process.
        examples_per_second: Median over blocks of steps; None where none was timed, or the batch is not known.
        steps_per_second: The same in batches.
        spread: Median absolute deviation of the blocks, as a share of the median.
        blocks: Blocks that were timed.
        steps: Batches in them.
        startup_seconds: From the start of the process to its first step, imports included.
        first_step_seconds: The first call of the train function: tracing and compilation.
        seconds: Of the whole process.
        peak_bytes: Memory at its peak by device, ``host`` for the process.
        loss: Mean training loss over the first ``loss_examples``; None where there is none to compare.
        loss_examples: Examples (batches, where the batch is not known) that ``loss`` covers.
        from_history: Whether an earlier search measured it.
    """

    settings: JsonObject = Field(default_factory=dict)
    ending: Ending
    reason: str = ""
    seed: Optional[int] = None
    examples_per_second: Optional[float] = Field(None, gt=0)
    steps_per_second: Optional[float] = Field(None, gt=0)
    spread: Optional[float] = Field(None, ge=0)
    blocks: int = Field(0, ge=0)
    steps: int = Field(0, ge=0)
    startup_seconds: Optional[float] = Field(None, ge=0)
    first_step_seconds: Optional[float] = Field(None, ge=0)
    seconds: float = Field(0.0, ge=0)
    peak_bytes: dict[str, int] = Field(default_factory=dict)
    loss: Optional[float] = None
    loss_examples: Optional[int] = None
    from_history: bool = False


class TrialRecord(Measured):
    """One trial of the search, in the order in which they were made; number 0 is the baseline.

    Attributes:
        number: From 0 on.
        why: Why it was tried, in words.
        expected_ratio: Throughput over the baseline's that was expected before it; None for the baseline.
    """

    number: int = Field(ge=0)
    why: str = ""
    expected_ratio: Optional[float] = None


class Dimension(Record):
    """One thing that is searched.

    Attributes:
        name: Its config key, or a word where several keys go together.
        knob: The knob that carries it.
        values: What is tried, as ``KEY=VALUE`` words; the first is what the user's config has.
        changes_results: Whether it was searched by ``--allow`` alone, since it changes results.
    """

    name: str
    knob: str
    values: tuple[str, ...]
    changes_results: bool = False


class Pruned(Record):
    """Combinations of settings that cost no trial.

    Attributes:
        rule: What rules them out, in words.
        kind: conflict and contradiction refuse a plan; not_applicable and no_effect come from the forecast of a knob;
            failed follows from a trial that failed for a setting which they share.
        combinations: How many, each counted under the first rule that hits it.
        example: The settings of one of them.
    """

    rule: str
    kind: Literal["conflict", "contradiction", "not_applicable", "no_effect", "same", "failed"]
    combinations: int = Field(gt=0)
    example: JsonObject = Field(default_factory=dict)


class AblationRow(Record):
    """What one setting of the best config buys: the best config over the same without it.

    Attributes:
        setting: Its config key, or the word for several that go together.
        value: What the best config has.
        without: What stands in its place: the user's own value, null where nothing is given.
        ratio: Best over without; None where the process without it failed.
        verdict: gain where the interval lies above 1.
        note: Why there is no ratio, or why the setting was dropped.
    """

    setting: str
    value: JsonValue = None
    without: JsonValue = None
    ratio: Optional[Ratio] = None
    verdict: Verdict
    note: str = ""


class LossBand(Record):
    """In which band the loss of a trial has to stay to win.

    Attributes:
        low: Lower end.
        high: Upper end.
        examples: Examples (batches, where the batch is not known) over which the loss is the mean.
        seeds: Seeds of the baseline's processes that it comes from.
        method: How it was made.
    """

    low: float
    high: float
    examples: int
    seeds: tuple[int, ...]
    method: str


class Overhead(Record):
    """What the search itself costs.

    Attributes:
        trial_seconds: Wall time of the processes that trials ran in.
        tuner_seconds: Wall time of everything else.
        tuner_cpu_seconds: Processor time of the tuner's own process while trials ran and between them.
        share: ``tuner_seconds`` over ``trial_seconds``.
    """

    trial_seconds: float = Field(ge=0)
    tuner_seconds: float = Field(ge=0)
    tuner_cpu_seconds: float = Field(ge=0)
    share: float = Field(ge=0)


class Machine(Record):
    """Where it was measured."""

    host: str = ""
    stack: str
    cpu: str = ""
    cores: float
    memory_mb: int
    gpus: tuple[str, ...] = ()
    driver: Optional[str] = None


class TuneResult(Record):
    """A whole search.

    Attributes:
        created: UTC, ISO 8601.
        command: The command line that made it.
        reproduce: The command that measures the winner against the baseline again.
        script: The training script.
        arguments: Its own.
        config: The user's config file or template; None for the default.
        overrides: ``KEY=VALUE`` words given with it.
        fingerprint: Equal for searches that may share trials.
        machine: Where.
        versions: Packages by name, tfvolta's own among them.
        seeds: Of all processes, each once.
        allowed: Groups of settings that change results and were allowed.
        space: What was searched.
        combinations: Size of the space before rules.
        pruned: What rules took out of it.
        baseline: The user's config as it is.
        best: The fastest trial that ended well; None where nothing beat the baseline.
        trials: All of the search.
        gain: Best over baseline, from the interleaved repeats at the end; None where nothing was to be compared.
        verdict: gain, or why not.
        sentence: The verdict in words, with its figures.
        loss_band: None where the script reports no loss.
        repeats: The processes of the interleaved repeats and of the ablation, in order.
        ablation: A row for each setting of the best config.
        overhead: What the search itself cost.
        reused: Trials taken from history.
        stopped: Why the search ended.
        tuned_config: The file that was written; None where nothing is to be written.
        notes: What a reader should know: callbacks that were left out, epochs that were added.
    """

    schema_version: Literal[1] = 1
    created: str
    command: tuple[str, ...]
    reproduce: str = ""
    script: str
    arguments: tuple[str, ...] = ()
    config: Optional[str] = None
    overrides: tuple[str, ...] = ()
    fingerprint: str
    machine: Machine
    versions: dict[str, str]
    seeds: tuple[int, ...]
    allowed: tuple[str, ...] = ()
    space: tuple[Dimension, ...]
    combinations: int = Field(ge=1)
    pruned: tuple[Pruned, ...] = ()
    baseline: Measured
    best: Optional[TrialRecord] = None
    trials: tuple[TrialRecord, ...] = ()
    gain: Optional[Ratio] = None
    verdict: Verdict
    sentence: str
    loss_band: Optional[LossBand] = None
    repeats: tuple[Measured, ...] = ()
    ablation: tuple[AblationRow, ...] = ()
    overhead: Overhead
    reused: int = Field(0, ge=0)
    stopped: str = ""
    tuned_config: Optional[str] = None
    notes: tuple[str, ...] = ()
