"""Which processes train together, as strategy kinds ask for it at plan time and when they are built."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Mapping, Optional

from tfvolta.errors import ClusterError, Problem
from tfvolta.strategy.devices import where

if TYPE_CHECKING:
    from tfvolta.cluster import Cluster
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


def read_cluster(
    config: Config, facts: Facts, environ: Optional[Mapping[str, str]] = None
) -> tuple[bool, Optional[Cluster]]:
    """Whether it can be known here which processes train together, and the processes; None where there is one.

    What is wrong with variables that cannot be read, the setting ``cluster`` says.

    Args:
        config: Its ``cluster.resolver`` can force a source.
        facts: This machine; of a recorded one nothing is known.
        environ: This process's environment where None.
    """
    from tfvolta.cluster import resolve

    if facts.source != "live":
        return False, None
    try:
        return True, resolve(os.environ if environ is None else environ, config, facts)
    except ClusterError:
        return False, None


def cluster_of(config: Config, facts: Facts) -> Optional[Cluster]:
    """The processes that train together, by this process's environment; None where there is one or none is known."""
    return read_cluster(config, facts)[1]


def too_few_workers(config: Config, cluster: Optional[Cluster], kind: str) -> Optional[Problem]:
    """The problem with a cluster that has no two workers, or parameter servers; None where it fits the kind."""
    place = where(config, "strategy.kind")
    if cluster is None:
        return Problem(
            where=place,
            expected="two workers or more",
            received="one process: nothing in the environment names others",
            why="TensorFlow would train a model of its own in every process, without a word",
            fix=f"start it with: tfvolta launch --workers 2 SCRIPT, or set strategy.kind: mirrored in place of {kind}",
        )
    if cluster.has_parameter_servers:
        return Problem(
            where=place,
            expected="workers, without parameter servers",
            received=f"{len(cluster.addresses['ps'])} parameter servers in the cluster ({cluster.resolver})",
            why="these workers keep all variables themselves, and nobody would ask the servers for anything",
            fix='set strategy.kind: parameter_server, or take the job "ps" out of the cluster',
        )
    if cluster.num_workers < 2:
        return Problem(
            where=place,
            expected="two workers or more",
            received=f"1 worker in the cluster ({cluster.resolver})",
            why="with one worker there is nobody to train with; its own devices are what mirrored is for",
            fix="name all workers in the cluster, or set strategy.kind: mirrored",
        )
    if cluster.rank is None:
        return Problem(
            where=place,
            expected="a worker or the chief",
            received=f"{cluster.name} in the cluster ({cluster.resolver})",
            why="an evaluator takes no part in training; it would wait for collectives that nobody sends",
            fix="start the evaluator with strategy.kind: default",
        )
    return None
