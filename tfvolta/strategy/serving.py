"""Workers and parameter servers of a cluster: they serve until the chief has ended."""

from __future__ import annotations

import dataclasses
import json
import queue
from typing import TYPE_CHECKING, Optional

from absl import logging

from tfvolta.cluster.lifelines import Lifelines
from tfvolta.errors import ClusterError, LostError, Problem

if TYPE_CHECKING:
    from tfvolta.cluster import Cluster

SERVING_JOBS = ("worker", "ps")
# The name under which a serving process can be told that the chief ends; see tfvolta.bridge.remote_call.
ENDED = "tfvolta.chief_ended"
CHIEF_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class ChiefEnd:
    """How the chief ended.

    Attributes:
        completed: Whether training came to its end.
        reason: The chief's own words otherwise; empty where it went without any.
    """

    completed: bool
    reason: str = ""

    def to_text(self) -> str:
        """For the way to another process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ChiefEnd:
        """What ``to_text`` made."""
        return cls(**json.loads(text))


class Served(SystemExit):
    """Raised in a process that served until the chief had finished; uncaught, it ends the process with exit code 0.

    Attributes:
        name: The task, such as ``worker 1``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(0)
        self.name = name


def serves(cluster: Optional[Cluster]) -> bool:
    """Whether this process is one that serves: a worker or a parameter server, where there are parameter servers."""
    return cluster is not None and cluster.has_parameter_servers and cluster.task_type in SERVING_JOBS


def serve(cluster: Cluster, seconds: float = CHIEF_SECONDS) -> None:
    """Serves as this process's task of a cluster, until the chief says that it has finished.

    Nothing of a training script runs in such a process: the chief sends it what it computes. The chief tells how it
    ends; one that ends without a word is noticed by its closed connection.

    Args:
        cluster: With this process as a worker or a parameter server.
        seconds: How long to wait for the chief to come.

    Raises:
        ClusterError: The chief never came, or this process's port is taken.
        LostError: The chief died, or failed.
    """
    from tfvolta.bridge.remote_call import Answering
    from tfvolta.bridge.serving import start_server

    endings: queue.SimpleQueue[ChiefEnd] = queue.SimpleQueue()

    def hear(text: str) -> str:
        endings.put(ChiefEnd.from_text(text))
        return "ok"

    answering = Answering(ENDED, hear)
    chief = cluster.addresses["chief"][0]
    try:
        server = start_server(cluster.addresses, cluster.task_type, cluster.task_index)
    except Exception as error:
        raise _cannot_listen(cluster, error) from error
    logging.info("tfvolta: %s serves at %s", cluster.name, cluster.address)
    lifelines = Lifelines({"chief": chief}, on_lost=lambda name: endings.put(ChiefEnd(False)))
    try:
        if lifelines.connect(seconds):
            raise _never_came(cluster, chief, seconds)
        lifelines.watch()
        end = endings.get()
    finally:
        lifelines.close()
        answering.close()
        del server
    if not end.completed:
        raise _chief_gone(cluster, chief, end)
    logging.info("tfvolta: the chief has finished, so %s ends", cluster.name)


def _cannot_listen(cluster: Cluster, error: Exception) -> ClusterError:
    problem = Problem(
        where=f"{cluster.name} at {cluster.address}",
        expected="a free port to serve at",
        received=str(error).split("\n", 1)[0],
        why="another process listens there, perhaps one left over from an earlier run",
        fix=f"end that process (ss -ltnp | grep :{cluster.port}), or give this task another port in every process",
    )
    return ClusterError(f"{cluster.name} cannot serve.", [problem])


def _never_came(cluster: Cluster, chief: str, seconds: float) -> ClusterError:
    problem = Problem(
        where=f"{cluster.name} at {cluster.address}",
        expected=f"a chief at {chief} within {seconds:g} seconds",
        received="nobody listens there",
        why="workers and parameter servers do nothing by themselves; the chief runs the script and sends them work",
        fix="start the chief with the same cluster, or set cluster.preflight_timeout_seconds higher",
    )
    return ClusterError("The chief never came.", [problem])


def _chief_gone(cluster: Cluster, chief: str, end: ChiefEnd) -> LostError:
    problem = Problem(
        where=f"{cluster.name} at {cluster.address}",
        expected=f"a chief at {chief} that says how it ends",
        received=end.reason or "a connection that broke without a word",
        why="the chief's process failed" if end.reason else "the chief's process was killed, or its machine is gone",
        fix="look at the chief's own output, and start all processes again; a checkpoint saves the steps so far",
    )
    return LostError("The chief is gone.", [problem])


def completed() -> ChiefEnd:
    """A training that came to its end."""
    return ChiefEnd(True)


def failed(reason: str) -> ChiefEnd:
    """A training that did not, with the reason."""
    return ChiefEnd(False, reason)
