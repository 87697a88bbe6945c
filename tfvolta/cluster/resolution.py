"""Finds the cluster: the first source that applies, or the one that the config forces."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Mapping, Optional

from tfvolta.cluster import horovod, kubernetes, mpich, open_mpi, slurm, tf_config
from tfvolta.cluster.cluster import Cluster
from tfvolta.cluster.finding import NEED_ADDRESSES, Resolver, Surroundings
from tfvolta.errors import ClusterError, Problem

# What was written for this very process comes first; a launcher inside an allocation comes before the allocation,
# whose ranks are those of the launcher's own daemons.
RESOLVERS: tuple[Resolver, ...] = (
    tf_config.RESOLVER,
    horovod.RESOLVER,
    open_mpi.RESOLVER,
    mpich.RESOLVER,
    slurm.RESOLVER,
    kubernetes.RESOLVER,
)


def resolve(environ: Mapping[str, str], config: Optional[Any] = None, facts: Optional[Any] = None) -> Optional[Cluster]:
    """The processes that train together, and which of them this one is.

    Args:
        environ: The process environment.
        config: ``tfvolta.config.schema.Config`` or None; its ``cluster.resolver`` can force a source, and its
            ``strategy.kind`` says whether addresses are needed.
        facts: ``tfvolta.facts.schema.Facts`` of this machine, or None.

    Returns:
        None where nothing says that several processes train together: a run of one local process.

    Raises:
        ClusterError: The variables contradict themselves or lack something; with all problems.
    """
    return find(Surroundings.of(environ, config, facts))


def find(surroundings: Surroundings) -> Optional[Cluster]:
    """``resolve``, from what was already taken out of a config.

    Raises:
        ClusterError: The variables contradict themselves or lack something; with all problems.
    """
    if surroundings.resolver == "local":
        return None
    forced = next((each for each in RESOLVERS if each.name == surroundings.resolver), None)
    chosen = forced or next(_applying(surroundings), None)
    if chosen is None:
        return None
    missing = chosen.missing(surroundings)
    if missing:
        raise _error((_missing(surroundings, chosen, missing),))
    finding = chosen.read(surroundings)
    if finding.problems:
        raise _error(finding.problems)
    cluster = finding.cluster
    if cluster is None:
        return None
    if cluster.lacking is not None and surroundings.kind in NEED_ADDRESSES:
        raise _error((cluster.lacking,))
    return dataclasses.replace(cluster, found=(*cluster.found, *_also(surroundings, chosen)))


def _applying(surroundings: Surroundings) -> Iterator[Resolver]:
    """The sources that apply, the first one first. Horovod's processes do not look at TF_CONFIG."""
    for resolver in RESOLVERS:
        if resolver.name == "tf_config" and surroundings.kind == "horovod":
            continue
        if resolver.mark(surroundings) is not None:
            yield resolver


def _missing(surroundings: Surroundings, chosen: Resolver, missing: tuple[str, ...]) -> Problem:
    others = [each.name for each in _applying(surroundings) if each.name != chosen.name]
    return Problem(
        where=f"cluster.resolver: {chosen.name}",
        expected=f"{', '.join(missing)} in the environment",
        received="not set",
        why=f"the resolver {chosen.name} cannot do without",
        fix=f"set cluster.resolver: {others[0]}, whose variables are set"
        if others
        else f"start the processes with {_STARTERS[chosen.name]}",
    )


_STARTERS = {
    "tf_config": "TF_CONFIG set for each of them, as tfvolta launch does",
    "horovod": "horovodrun",
    "open_mpi": "Open MPI's mpirun",
    "mpich": "MPICH's mpiexec",
    "slurm": "srun",
    "kubernetes": "an Indexed Job",
}


def _also(surroundings: Surroundings, chosen: Resolver) -> tuple[str, ...]:
    """Sentences on the sources that would have applied too."""
    if surroundings.resolver != "auto":
        return (f"cluster.resolver: {chosen.name} was asked for.",)
    others = [each for each in _applying(surroundings) if each.name != chosen.name]
    return tuple(
        f"{each.mark(surroundings)} is set too and was not used; cluster.resolver: {each.name} would use it."
        for each in others
    )


def _error(problems: tuple[Problem, ...]) -> ClusterError:
    count = len(problems)
    return ClusterError(f"The cluster cannot be used: {count} problem{'s' * (count > 1)}.", problems)
