"""What a resolver looks at, and what it found."""

from __future__ import annotations

import dataclasses
import functools
import socket
from typing import Any, Callable, Mapping, NamedTuple, Optional

from tfvolta.cluster.cluster import Cluster
from tfvolta.errors import Problem

# Kinds whose processes find each other through TF_CONFIG.
NEED_ADDRESSES = ("multi_worker_mirrored", "parameter_server")
# Kinds of several processes.
SEVERAL = (*NEED_ADDRESSES, "horovod")


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What resolvers look at.

    Attributes:
        environ: The process environment.
        kind: The strategy kind asked for; empty where there is no config.
        resolver: ``cluster.resolver``.
        port: ``cluster.port``.
        parameter_servers: ``cluster.parameter_servers``, or its default.
        known_host: This machine's name where facts tell it; empty to ask the system.
    """

    environ: Mapping[str, str]
    kind: str = ""
    resolver: str = "auto"
    port: Optional[int] = None
    parameter_servers: int = 1
    known_host: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str], config: Optional[Any], facts: Optional[Any]) -> Surroundings:
        """What a config and facts add to an environment."""
        host = str(getattr(facts, "host", "") or "")
        if config is None:
            return cls(environ, known_host=host)
        return cls(
            environ,
            kind=str(config.get("strategy.kind") or "default"),
            resolver=str(config.get("cluster.resolver") or "auto"),
            port=config.get("cluster.port"),
            parameter_servers=config.get("cluster.parameter_servers") or 1,
            known_host=host,
        )

    @property
    def host(self) -> str:
        """This machine's name."""
        return self.known_host or socket.gethostname()

    @functools.cached_property
    def full_host(self) -> str:
        """This machine's name with its domain, as the system knows it."""
        return socket.getfqdn()

    def first_of(self, *variables: str) -> Optional[str]:
        """The first of some variables that is set to something."""
        return next((name for name in variables if self.environ.get(name)), None)


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one resolver found.

    Attributes:
        cluster: The processes that train together; None where there is one process, or where problems stand.
        problems: What is wrong with the variables.
    """

    cluster: Optional[Cluster] = None
    problems: tuple[Problem, ...] = ()


class Resolver(NamedTuple):
    """One source of clusters.

    Attributes:
        name: As in ``cluster.resolver``.
        mark: The variable whose presence says that this source applies; None where it does not.
        read: Reads the variables; asked only where ``missing`` names none.
        missing: Variables that it needs and that are not set.
    """

    name: str
    mark: Callable[[Surroundings], Optional[str]]
    read: Callable[[Surroundings], Finding]
    missing: Callable[[Surroundings], tuple[str, ...]]


def whole_numbers(values: Mapping[str, str]) -> tuple[dict[str, int], list[Problem]]:
    """Values of variables as numbers, with a problem for each that is none.

    Args:
        values: Texts by the name of their variable.
    """
    numbers, problems = {}, []
    for variable, text in values.items():
        if text.strip().isdigit():
            numbers[variable] = int(text)
        else:
            problems.append(Problem(f"environment: {variable}", "a whole number from 0 on", repr(text)))
    return numbers, problems


def rank_problem(variable: str, rank: int, size: int) -> list[Problem]:
    """The problem with a rank that is too large; none for one that fits."""
    if rank < size:
        return []
    return [Problem(f"environment: {variable}", f"a rank below {size}, the number of processes", str(rank))]
