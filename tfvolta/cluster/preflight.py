"""The check before training: all workers meet, and either all go on or all end with the same error."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Protocol

from tfvolta.cluster.attendee import Attendee
from tfvolta.cluster.chief import Chief
from tfvolta.cluster.cluster import Cluster
from tfvolta.cluster.meeting_place import place_of
from tfvolta.cluster.verdict import Verdict
from tfvolta.cluster.worker_report import make_report


class Process(Protocol):
    """What the report is made of; the context of a session has it all.

    Attributes:
        facts: ``tfvolta.facts.schema.Facts`` of this machine and stack.
        config: The whole config.
    """

    facts: Any
    config: Any

    @property
    def environ(self) -> Mapping[str, str]:
        """The process environment."""


def meet(cluster: Cluster, process: Process, timeout_seconds: float, started: bool = False) -> Optional[Verdict]:
    """Meets the other workers of a cluster and compares versions, configs, devices and clocks.

    Rank 0 listens; the others come to it. Call it in every process of the cluster, evaluators apart, before the model
    is built.

    Args:
        cluster: Who trains together.
        process: Facts, config and environment of this process.
        timeout_seconds: How long workers wait for each other.
        started: Whether this process has started TensorFlow before, so that a chief that has done so too may still
            come to the meeting.

    Returns:
        What the meeting came to; None where nothing tells the processes of a common place, or there is nobody to meet.

    Raises:
        ClusterError: A worker did not come, or workers differ; with every problem, alike on every worker.
    """
    if cluster.rank is None or cluster.world_size < 2:
        return None
    place = place_of(cluster, process.environ)
    if place is None:
        return None
    report = make_report(cluster, process.facts, process.config, process.environ)
    if cluster.rank == 0:
        verdict = Chief(place, report, timeout_seconds).hold()
    else:
        verdict = Attendee(place, report, timeout_seconds, started).attend()
    verdict.check()
    return verdict
