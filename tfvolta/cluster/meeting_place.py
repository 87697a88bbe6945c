"""Where the workers meet before training: where the cluster's addresses say, or where Horovod's own store says."""

from __future__ import annotations

import abc
import errno
import hashlib
import http.client
import json
import socket
from typing import Any, Mapping, Optional, Sequence

from tfvolta.cluster.address import host_of, is_loopback, join, port_of
from tfvolta.cluster.cluster import Cluster
from tfvolta.cluster.ports import meeting_ports
from tfvolta.errors import ClusterError, Problem

BACKLOG = 1024
_STORE = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
_STORE_SECONDS = 5.0
_LOOPBACK = "127.0.0.1"


class MeetingPlace(abc.ABC):
    """Where the chief listens, and how the others find it.

    Attributes:
        token: Equal for the processes of one job, so that two jobs do not mix.
        cluster: Who is expected.
    """

    def __init__(self, cluster: Cluster, identity: Any):
        self.cluster = cluster
        self.identity = identity
        self.token = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    @abc.abstractmethod
    def listen(self) -> socket.socket:
        """The chief's listening socket.

        Raises:
            ClusterError: Its port is taken.
        """

    @abc.abstractmethod
    def doors(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports at one of which the chief listens.

        Raises:
            OSError: They are not known yet.
        """

    def has_chief_of(self, identity: Any) -> bool:
        """Whether another list of workers has the chief of this one, so that the two cannot be different jobs."""
        del identity
        return True

    @property
    @abc.abstractmethod
    def chief_name(self) -> str:
        """The chief in words."""

    @property
    @abc.abstractmethod
    def chief(self) -> str:
        """The chief in words, with where it meets the others."""

    def is_served(self, rank: int) -> bool:
        """Whether TensorFlow's own server of a process answers, so that this process is past the meeting."""
        del rank
        return False


class AddressPlace(MeetingPlace):
    """At the chief's own address, on a port beside that of the cluster. A cluster on loopback stays there."""

    def __init__(self, cluster: Cluster):
        members = cluster.members()
        super().__init__(cluster, {job: list(tasks) for job, tasks in cluster.addresses.items()})
        self._addresses = [address for _, _, address in members]
        self._host = host_of(self._addresses[0])
        same = [port_of(address) for address in self._addresses if host_of(address) == self._host]
        self._ports = meeting_ports(port_of(self._addresses[0]), frozenset(same))
        self._chief = f"{members[0][0]} {members[0][1]} ({self._addresses[0]})"

    @property
    def chief_name(self) -> str:
        return self._chief

    @property
    def chief(self) -> str:
        return f"{self._chief}, which meets the others at {join(self._host, self._ports[0])}"

    def listen(self) -> socket.socket:
        errors = []
        for port in self._ports:
            try:
                return self._listen(port)
            except OSError as error:
                errors.append(error)
        raise _cannot_listen(self.cluster, self._host, self._ports, errors[0]) from errors[0]

    def _listen(self, port: int) -> socket.socket:
        try:
            return _listen(self._host, port)
        except OSError as error:
            # A service before a pod has an address that is no address of the pod.
            if error.errno == errno.EADDRNOTAVAIL and not is_loopback(self._host):
                return _listen("", port)
            raise

    def doors(self) -> tuple[tuple[str, int], ...]:
        return tuple((self._host, port) for port in self._ports)

    def has_chief_of(self, identity: Any) -> bool:
        if not isinstance(identity, dict):
            return False
        listed = identity.get("chief") or identity.get("worker") or [None]
        return bool(listed[0] == self._addresses[0])

    def is_served(self, rank: int) -> bool:
        address = self._addresses[rank]
        try:
            socket.create_connection((host_of(address), port_of(address)), timeout=1.0).close()
        except OSError:
            return False
        return True


class GlooPlace(MeetingPlace):
    """Wherever rank 0 listens, which it leaves in the store through which Horovod's processes find each other.

    Source: ``horovod/runner/http/http_server.py``, Horovod 0.28: a plain store of bytes, GET and PUT by scope and key.
    """

    def __init__(self, cluster: Cluster, environ: Mapping[str, str]):
        self._store = (environ[_STORE[0]], int(environ[_STORE[1]]))
        super().__init__(cluster, [*self._store, cluster.world_size])
        self._local = cluster.local_size == cluster.world_size
        self._own = _LOOPBACK if self._local else environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
        self._path = f"/tfvolta/{self.token[:32]}"

    @property
    def chief_name(self) -> str:
        return "worker 0"

    @property
    def chief(self) -> str:
        return f"worker 0, which leaves its address with horovodrun at {join(*self._store)}"

    def listen(self) -> socket.socket:
        listening = _listen(_LOOPBACK if self._local else "", 0)
        self._ask("PUT", join(self._own, listening.getsockname()[1]).encode())
        return listening

    def doors(self) -> tuple[tuple[str, int], ...]:
        address = self._ask("GET").decode()
        return ((host_of(address), port_of(address)),)

    def _ask(self, method: str, body: Optional[bytes] = None) -> bytes:
        store = http.client.HTTPConnection(*self._store, timeout=_STORE_SECONDS)
        try:
            store.request(method, self._path, body)
            response = store.getresponse()
            content = response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"horovodrun's store at {join(*self._store)}: {error!r}") from error
        finally:
            store.close()
        if response.status != http.client.OK:
            raise ConnectionError("rank 0 has not left its address yet")
        return content


def place_of(cluster: Cluster, environ: Mapping[str, str]) -> Optional[MeetingPlace]:
    """Where the workers of a cluster meet; None where nothing tells them of a common place."""
    if cluster.addresses:
        return AddressPlace(cluster)
    if all(environ.get(name) for name in _STORE) and environ[_STORE[1]].isdigit():
        return GlooPlace(cluster, environ)
    return None


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket at one host, or at every address of this machine for an empty one.

    Many systems give a machine's own name a loopback address (127.0.1.1 on Debian), at which no other machine arrives.
    """
    if host:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        own = str(address[0])
        if is_loopback(host) or not is_loopback(own):
            return socket.create_server((own, port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=BACKLOG)


def _cannot_listen(own: Cluster, host: str, ports: Sequence[int], error: OSError) -> ClusterError:
    taken = error.errno == errno.EADDRINUSE
    listed = ", ".join(str(port) for port in ports)
    problem = Problem(
        where=f"{own.name} ({own.address})",
        expected=f"one of the ports {listed} free on {host}, for the meeting of the workers before training",
        received="other processes listen on them" if taken else str(error),
        why="other jobs on this machine have these ports, or earlier runs have not ended" if taken else "",
        fix=f"end them (ss -ltnp 'sport = :{ports[0]}' shows the first), or give this job other ports",
    )
    return ClusterError(f"{own.name} cannot meet the others on {host}.", [problem])
