"""Finds the cluster: the first source that applies, or the one that the config forces."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.cluster import tf_config
from tfvolta.cluster.cluster import Cluster
from tfvolta.cluster.finding import Surroundings
from tfvolta.errors import ClusterError

_RESOLVERS = (tf_config.RESOLVER,)


def resolve(environ: Mapping[str, str], config: Optional[Any] = None, facts: Optional[Any] = None) -> Optional[Cluster]:
    """The processes that train together, and which of them this one is.

    Args:
        environ: The process environment.
        config: ``tfvolta.config.schema.Config`` or None; its ``cluster.resolver`` can force a source.
        facts: ``tfvolta.facts.schema.Facts`` of this machine, or None.

    Returns:
        None where nothing says that several processes train together: a run of one local process.

    Raises:
        ClusterError: The variables contradict themselves or lack something; with all problems.
    """
    surroundings = Surroundings(environ, config, facts)
    for resolver in _RESOLVERS:
        if resolver.mark(surroundings) is None:
            continue
        finding = resolver.read(surroundings)
        if finding.problems:
            count = len(finding.problems)
            raise ClusterError(f"The cluster cannot be used: {count} problem{'s' * (count > 1)}.", finding.problems)
        return finding.cluster
    return None
