"""The chief of a cluster with parameter servers: connects to the others, watches them, tells them how it ends."""

from __future__ import annotations

import atexit
import re
import sys
import threading
from typing import TYPE_CHECKING, Any, Optional

from absl import logging

from tfvolta.cluster.lifelines import Lifelines
from tfvolta.errors import ClusterError, LostError, Problem
from tfvolta.strategy.serving import ENDED, ChiefEnd, completed, failed

if TYPE_CHECKING:
    from tfvolta.cluster import Cluster
    from tfvolta.strategy.sharding import SizePartitioner

# How long the end of this process may be held up by servers that do not answer.
_FAREWELL_SECONDS = 10.0
_SERVER_IN_ERROR = re.compile(r"remote target /job:ps/replica:0/task:(\d+)")
_RESTART = "start all processes again; a checkpoint saves the steps so far"


class Coordination:
    """This process as the chief.

    Attributes:
        cluster: Who trains together.
        strategy: The ``tf.distribute.ParameterServerStrategy``.
        coordinator: ``tfvolta.bridge.coordinator.Coordinator`` of the strategy.
        lost: Names of processes that were lost so far, workers that came back included.
    """

    def __init__(self, cluster: Cluster, partitioner: SizePartitioner, seconds: float) -> None:
        """Connects.

        Args:
            cluster: With this process as the chief.
            partitioner: How variables are split.
            seconds: How long to wait for the others, and for a worker to come back where all are lost.

        Raises:
            ClusterError: Some of them did not come.
        """
        self.cluster = cluster
        self.lost: list[str] = []
        self._seconds = seconds
        self._lock = threading.Lock()
        self._give_up: Optional[threading.Timer] = None
        self._ended = False
        addresses = {f"{job} {index}": address for job, index, address in cluster.members() if job in ("worker", "ps")}
        self._lifelines = Lifelines(addresses, self._on_lost, self._on_back)
        missing = self._lifelines.connect(seconds)
        if missing:
            self._lifelines.close()
            raise _did_not_come({name: addresses[name] for name in missing}, seconds)
        self._addresses = addresses
        self.strategy, self.coordinator = self._coordinate(partitioner)
        self._lifelines.watch()

    def _coordinate(self, partitioner: SizePartitioner) -> tuple[Any, Any]:
        from tfvolta.bridge.coordinator import Coordinator, connect

        strategy = connect({job: self.cluster.addresses[job] for job in ("chief", "worker", "ps")}, partitioner)
        return strategy, Coordinator(strategy, self.cluster.num_workers, self.explain)

    def explain(self, error: Exception) -> Optional[Exception]:
        """The error that names a lost parameter server, for one of TensorFlow's about sockets."""
        found = _SERVER_IN_ERROR.findall(str(error))
        if not found or type(error).__name__ not in ("UnavailableError", "AbortedError", "InvalidArgumentError"):
            return None
        name = f"ps {found[-1]}"
        return self._server_lost(name) if name in self._addresses else None

    def end(self, ending: ChiefEnd) -> None:
        """Tells every process that still lives how the chief ends, so that it ends too; once."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        if self._give_up is not None:
            self._give_up.cancel()
        gone = set(self._lifelines.lost)
        self._lifelines.close()
        threads = [
            threading.Thread(target=self._tell, args=(name, ending.to_text()), daemon=True)
            for name in self._addresses
            if name not in gone
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_FAREWELL_SECONDS)

    def _tell(self, name: str, text: str) -> None:
        from tfvolta.bridge.remote_call import call

        job, index = name.split(" ")
        try:
            call(f"/job:{job}/replica:0/task:{index}/device:CPU:0", ENDED, text)
        except Exception as error:  # it ends by itself when this process is gone
            logging.info("tfvolta: %s did not hear how the chief ends: %s", name, error)

    # -- from the thread that watches

    def _on_lost(self, name: str) -> None:
        self.lost.append(name)
        if name.startswith("ps "):
            self.coordinator.fail(self._server_lost(name))
            return
        logging.warning("tfvolta: %s at %s is gone; the other workers take its steps", name, self._addresses[name])
        with self._lock:
            if self._give_up is None and self._no_worker():
                self._give_up = threading.Timer(self._seconds, self._fail_without_workers)
                self._give_up.daemon = True
                self._give_up.start()

    def _on_back(self, name: str) -> None:
        logging.warning("tfvolta: %s is back", name)
        with self._lock:
            if self._give_up is not None:
                self._give_up.cancel()
                self._give_up = None

    def _no_worker(self) -> bool:
        return sum(name.startswith("worker ") for name in self._lifelines.lost) >= self.cluster.num_workers

    def _fail_without_workers(self) -> None:
        problem = Problem(
            where="cluster: worker",
            expected="a worker that computes the steps",
            received=f"all {self.cluster.num_workers} are gone, for {self._seconds:g} seconds",
            why="the chief and the parameter servers compute no steps themselves",
            fix=f"look at the output of the workers, and {_RESTART}",
        )
        self.coordinator.fail(LostError("No worker is left.", [problem]))

    def _server_lost(self, name: str) -> LostError:
        problem = Problem(
            where=f"{name} at {self._addresses[name]}",
            expected="a parameter server that lives as long as training does",
            received="it is gone",
            why="the variables that it held are lost, so a server that comes back cannot take its place",
            fix=f"look at its output, and {_RESTART}",
        )
        return LostError(f"Parameter {name.replace('ps', 'server')} was lost.", [problem])


_coordinations: dict[tuple[Any, ...], Coordination] = {}


def coordinate(cluster: Cluster, partitioner: SizePartitioner, seconds: float) -> Coordination:
    """Connects to a cluster as its chief; the same call again gives the same object.

    Raises:
        ClusterError: Some processes did not come, or this process coordinates already, in another way.
    """
    key = (tuple(cluster.members()), partitioner.limit_bytes)
    if key in _coordinations:
        return _coordinations[key]
    if _coordinations:
        raise _twice()
    made = Coordination(cluster, partitioner, seconds)
    _coordinations[key] = made
    atexit.register(_end_at_exit)
    return made


def present() -> Optional[Coordination]:
    """The coordination of this process, or None where it is no chief of parameter servers."""
    return next(iter(_coordinations.values()), None)


def end(code: int, reason: str = "") -> None:
    """Tells workers and parameter servers that this process ends; nothing where it has none.

    Args:
        code: Its exit code.
        reason: Why, where it is not 0.
    """
    for each in _coordinations.values():
        each.end(completed() if code == 0 else failed(reason or f"the chief ended with exit code {code}"))


def _end_at_exit() -> None:
    error = getattr(sys, "last_value", None)
    end(0 if error is None else 1, "" if error is None else f"{type(error).__name__}: {error}".split("\n", 1)[0])


def _did_not_come(missing: dict[str, str], seconds: float) -> ClusterError:
    problems = [
        Problem(
            where=f"{name} at {address}",
            expected=f"a process that serves there within {seconds:g} seconds",
            received="nobody listens",
            why="it was not started, or it ended: its own output says why",
            fix="start it with the same cluster and config, or set cluster.preflight_timeout_seconds higher",
        )
        for name, address in missing.items()
    ]
    return ClusterError(f"{', '.join(missing)} did not come.", problems)


def _twice() -> ClusterError:
    problem = Problem(
        where="strategy.kind: parameter_server",
        expected="one cluster and one strategy.shard_above_mb in a process",
        received="another one than before",
        why="TensorFlow connects a process to one cluster, and the servers hold the variables of the first strategy",
        fix="run each configuration in processes of its own",
    )
    return ClusterError("This process coordinates parameter servers already.", [problem])
