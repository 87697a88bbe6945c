"""What is kept of a run: what was asked for, what was planned, how every setting ended, what was measured."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tfvolta.errors import Problem
from tfvolta.evidence.values import JsonObject, JsonValue, Text
from tfvolta.facts.schema import Facts
from tfvolta.outcome import Status

SCHEMA_VERSION = 1
RunStatus = Literal["running", "completed", "failed", "interrupted", "refused"]


class Record(BaseModel):
    """Base of everything in evidence: no unknown keys, no change after recording."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProblemRecord(Record):
    """One ``tfvolta.errors.Problem``."""

    where: Text
    expected: Text
    received: Text
    why: Text = ""
    fix: Text = ""


def _problem(value: Any) -> Any:
    return {name: getattr(value, name) for name in ProblemRecord.model_fields} if isinstance(value, Problem) else value


AnyProblem = Annotated[ProblemRecord, BeforeValidator(_problem)]


class ConfigRecord(Record):
    """The config of the run.

    Attributes:
        values: The whole config by section; null where a section is absent.
        provenance: Where each given value came from, by dotted key: a sentence or an object.
    """

    values: JsonObject = Field(default_factory=dict)
    provenance: JsonObject = Field(default_factory=dict)


class PlanStep(Record):
    """One knob of the plan, as ``tfvolta.plan.Step.to_json`` gives it.

    Attributes:
        value: What the config asks for.
        origin: Where the value came from, such as ``configs/a.yaml:7``.
        status: What was forecast for this machine and stack.
        message: Why, in a sentence.
        condition: On what the forecast depends; empty when on nothing.
        techniques: Ids of the tuning techniques that it carries.
    """

    knob: str
    keys: tuple[str, ...] = ()
    phase: str
    value: JsonValue = None
    origin: Text = ""
    status: Status
    message: Text = ""
    condition: Text = ""
    techniques: tuple[str, ...] = ()


class OutcomeRecord(Record):
    """How one setting ended.

    Attributes:
        status: One of the five outcomes, or PENDING for what was not reached.
        message: What was seen, or why not.
        observed: What was read back or counted.
        phase: Phase in which that became known.
        applied_at: ISO time, UTC; null for what was never applied.
        value: What was applied.
    """

    status: Status
    message: Text = ""
    observed: JsonObject = Field(default_factory=dict)
    phase: Optional[str] = None
    applied_at: Optional[str] = None
    value: JsonValue = None


class WorkerRecord(Record):
    """Which process of several wrote this.

    Attributes:
        name: Such as ``worker 1``.
        rank: Its number among all of the run.
        workers: How many processes there are.
        is_chief: Whether it writes what is written once.
        restart: How often its launcher had started the run again.
    """

    name: Text
    rank: Optional[int] = None
    workers: int = 1
    is_chief: bool = True
    restart: int = 0


class ErrorRecord(Record):
    """The exception that ended a run.

    Attributes:
        type: Name of its class.
        message: Its text, without the problems.
        problems: What was wrong, where tfvolta raised it.
        traceback: Where it came from, for faults of the script.
    """

    type: str
    message: Text = ""
    problems: tuple[AnyProblem, ...] = ()
    traceback: Text = ""

    @classmethod
    def of(cls, error: BaseException) -> ErrorRecord:
        """The record of an exception; the traceback is left out of tfvolta's own errors, which say enough."""
        from traceback import format_exception

        from tfvolta.errors import Preempted, TfvoltaError

        if isinstance(error, TfvoltaError):
            return cls(type=type(error).__name__, message=error.summary, problems=error.problems)
        if isinstance(error, Preempted):
            return cls(type=type(error).__name__, message=error.message)
        lines = format_exception(type(error), error, error.__traceback__)
        return cls(type=type(error).__name__, message=str(error), traceback="".join(lines))


class Evidence(Record):
    """One run, from its start to its end; written anew whenever something became known.

    Attributes:
        schema_version: Raised when a field changes its meaning.
        status: ``running`` also of a run that was killed; ``pid`` and ``host`` tell the two apart.
        started: ISO time, UTC.
        updated: When this was last written; set by the store.
        ended: ISO time, UTC; null while running.
        command: The command line.
        script: The training script, or null.
        worker: Which process of several this is; null for a run of one.
        conflicts: Why a refused run was refused.
        contradictions: Where the environment said otherwise than the config.
        warnings: What the reader should know and nothing else says.
        outcomes: How each setting ended, by knob name.
        measurements: By name; values as the one who measured gave them, with units in their names.
        fits: One object for each call of ``fit``.
        versions: Versions of packages, by distribution name.
        error: What ended the run; null for a good end.
    """

    schema_version: Literal[1] = 1
    run_id: str = Field(min_length=1)
    status: RunStatus = "running"
    started: str
    updated: Optional[str] = None
    ended: Optional[str] = None
    pid: Optional[int] = None
    host: Text = ""
    command: tuple[Text, ...] = ()
    script: Optional[Text] = None
    cwd: Text = ""
    worker: Optional[WorkerRecord] = None
    config: ConfigRecord = Field(default_factory=ConfigRecord)
    facts: Optional[Facts] = None
    stack: Optional[str] = None
    plan: tuple[PlanStep, ...] = ()
    conflicts: tuple[AnyProblem, ...] = ()
    contradictions: tuple[AnyProblem, ...] = ()
    warnings: tuple[Text, ...] = ()
    outcomes: dict[str, OutcomeRecord] = Field(default_factory=dict)
    measurements: JsonObject = Field(default_factory=dict)
    fits: tuple[JsonObject, ...] = ()
    versions: dict[str, Text] = Field(default_factory=dict)
    error: Optional[ErrorRecord] = None

    def updated_with(self, **changes: Any) -> Evidence:
        """A copy with some fields replaced, checked like a new one.

        Raises:
            pydantic.ValidationError: A field has no such form.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**fields, **changes})
