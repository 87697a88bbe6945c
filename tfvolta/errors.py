"""Errors and warnings: each says what was expected, what was received, why, and the fix."""

from __future__ import annotations

import dataclasses
from typing import Iterable


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong, with all a reader needs to mend it.

    Attributes:
        where: Place of the fault, such as ``configs/a.yaml:7: xla.jit`` or ``environment: XLA_FLAGS``.
        expected: What would have been accepted.
        received: What was found instead.
        why: The reason, technical and in one sentence; empty when expected and received say it all.
        fix: The line to write or the command to run.
    """

    where: str
    expected: str
    received: str
    why: str = ""
    fix: str = ""

    def __str__(self) -> str:
        lines = [f"{self.where}", f"  expected: {self.expected}", f"  received: {self.received}"]
        if self.why:
            lines.append(f"  why:      {self.why}")
        if self.fix:
            lines.append(f"  fix:      {self.fix}")
        return "\n".join(lines)


class TfvoltaError(Exception):
    """Base of every error raised on purpose; carries all problems found, not just the first.

    Attributes:
        problems: What is wrong, in the order in which it was found.
        exit_code: What the command line exits with: 1 a check failed, 2 unusable input.
    """

    exit_code = 2
    # An error raised while a tf.function is traced stays what it is: AutoGraph makes its own class out of any other.
    ag_pass_through = True

    def __init__(self, message: str, problems: Iterable[Problem] = ()):
        self.problems = tuple(problems)
        self.summary = message
        super().__init__("\n".join([message, *(str(problem) for problem in self.problems)]))


# How a process ends that was told to (SIGTERM) and did so in order: 128 and the signal's number, as shells have it,
# which Kubernetes' training operators take for a reason to start it again.
PREEMPTED_EXIT_CODE = 143


class Preempted(SystemExit):
    """Ends the process because it was told to end, after its state was saved; no fault of the script."""

    def __init__(self, message: str):
        self.message = message
        super().__init__(PREEMPTED_EXIT_CODE)

    def __str__(self) -> str:
        return self.message


class ConfigError(TfvoltaError, ValueError):
    """A config, an override or an argument that cannot be used."""


class PlanError(TfvoltaError, ValueError):
    """A config that is well formed and cannot work on this machine or stack."""


class ClusterError(PlanError):
    """Processes that cannot train together: what a launcher set, or what the workers are, does not fit."""


class CheckpointError(TfvoltaError, RuntimeError):
    """Checkpoints that cannot be written, or that this training cannot go on from."""


class FactsError(TfvoltaError, ValueError):
    """Recorded facts that cannot be read."""


class EvidenceError(TfvoltaError, ValueError):
    """A run directory or an evidence file that cannot be written or read."""


class LateError(TfvoltaError, RuntimeError):
    """A setting whose phase was over before it could be applied (strict configs only)."""


class NoEffectError(TfvoltaError, RuntimeError):
    """A setting that was set and changes nothing (strict configs only)."""


class BridgeError(TfvoltaError, RuntimeError):
    """Keras is not as the bridge knows it, or a layer class cannot be served."""


class EstimateError(TfvoltaError, RuntimeError):
    """A script or a model of which nothing could be estimated."""


class StallError(TfvoltaError, RuntimeError):
    """Training made no progress for too long; the watchdog ends the process with this exit code."""

    exit_code = 75  # "temporary failure" of sysexits.h: starting again may help


class LostError(TfvoltaError, RuntimeError):
    """Another process of the cluster was lost, and training cannot go on without it."""

    exit_code = 75  # as for a stall: starting again may help


class HistoryError(TfvoltaError, RuntimeError):
    """A config file that is not as any run has known it, or that would be written over."""

    exit_code = 1


class LaunchError(TfvoltaError, ValueError):
    """Workers that cannot be started as asked for."""


class TuneError(TfvoltaError, RuntimeError):
    """A search for settings that cannot be made, go on, or keep what it found."""


class NumericsError(TfvoltaError, ArithmeticError):
    """Training has gone wrong numerically, and the config asks to end it for that."""

    exit_code = 1  # a check that the config asks for has failed; a restart from a checkpoint may do better


class TfvoltaWarning(UserWarning):
    """Base of every warning."""


class LateWarning(TfvoltaWarning):
    """A setting came too late and the config is not strict."""


class NoEffectWarning(TfvoltaWarning):
    """A setting changes nothing and the config is not strict."""


class ContradictionWarning(TfvoltaWarning):
    """The user's environment or script contradicts the config."""


class AuditWarning(TfvoltaWarning):
    """Something about the model makes training wrong or slow."""


class EvidenceWarning(TfvoltaWarning):
    """Evidence can no longer be written, and training goes on."""


class CheckpointWarning(TfvoltaWarning):
    """A checkpoint cannot be written or read, or a training goes on from one inexactly."""


class ClusterWarning(TfvoltaWarning):
    """Workers that can train together differ in what may slow them down or mislead a reader."""


class RecompilationWarning(TfvoltaWarning):
    """XLA compiles the train step more often than once."""


class InputBoundWarning(TfvoltaWarning):
    """Training spends a share of its time waiting for data."""


class NumericsWarning(TfvoltaWarning):
    """Training has gone wrong numerically."""


class GuardWarning(TfvoltaWarning):
    """A run leaves the throughput or the loss of the run that it is held to."""
