"""What can be known to fail before the workers meet: hosts, addresses, ports and GPUs, seen from one of them."""

from __future__ import annotations

import concurrent.futures
import errno
import socket
from typing import Any, Iterable, Mapping, Optional, Sequence

from tfvolta.cluster.address import host_of, is_loopback, port_of
from tfvolta.cluster.cluster import Cluster
from tfvolta.errors import Problem
from tfvolta.facts.visibility import visible_gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Name servers answer in milliseconds, or after their time limits: hosts are looked up side by side.
_LOOKUPS = 32
_KUBERNETES = "KUBERNETES_SERVICE_HOST"


def gpu_problems(
    cluster: Cluster, facts: Any, environ: Mapping[str, str], visible: Optional[Sequence[int]] = None
) -> list[Problem]:
    """The problem with more workers on this machine than GPUs; none where no GPU is wanted.

    A launcher that binds GPUs sets ``CUDA_VISIBLE_DEVICES`` for each worker, and may hide the others from facts.

    Args:
        cluster: Who trains together.
        facts: The machine.
        environ: The process environment.
        visible: ``devices.visible`` where it is a list.
    """
    if not facts.gpus or visible == [] or cluster.task_type not in ("chief", "worker"):
        return []
    where = f"{cluster.name} on {facts.host or cluster.host or 'this machine'}"
    mask = environ.get(VISIBLE)
    if mask is not None:
        wanted = [entry for entry in mask.split(",") if entry.strip() not in ("", "-1", "NoDevFiles")]
        if not wanted or visible_gpus(facts.gpus, mask):
            return []
        indices = ", ".join(str(gpu.index) for gpu in facts.gpus)
        why = "CUDA would show this worker no GPU, and it would train on the CPU while the others wait"
        fix = f"start as many workers on this machine as it has GPUs, or correct {VISIBLE}"
        return [Problem(where, f"{VISIBLE} naming some of the GPUs {indices}", f"{VISIBLE}={mask}", why, fix)]
    count = len(facts.gpus)
    if cluster.local_size is None or cluster.local_size <= count:
        return []
    return [
        Problem(
            where=where,
            expected=f"at most {count} workers on a machine with {count} GPU{'s' * (count > 1)}",
            received=f"{cluster.local_size} workers",
            why="workers that share a GPU take its memory from each other, and NCCL refuses them",
            fix=f"start {count} worker{'s' * (count > 1)} on this machine, or hide the GPUs: {VISIBLE}=-1",
        )
    ]


def gpu_warnings(cluster: Cluster, facts: Any, environ: Mapping[str, str], kind: str = "") -> list[str]:
    """What is unwise about the GPUs of this machine, in sentences.

    Args:
        cluster: Who trains together.
        facts: The machine.
        environ: The process environment.
        kind: The strategy kind; under horovod each rank takes the GPU of its local rank by itself.
    """
    warnings = []
    names = sorted({gpu.name for gpu in facts.gpus})
    if len(names) > 1:
        warnings.append(
            f"{facts.host or 'This machine'} has GPUs of different models ({', '.join(names)}): every step waits for"
            f" the slowest; choose equal ones with devices.visible or {VISIBLE}."
        )
    shared = (cluster.local_size or 1) > 1 and cluster.task_type in ("chief", "worker")
    if shared and kind != "horovod" and len(facts.gpus) > 1 and environ.get(VISIBLE) is None:
        warnings.append(
            f"Each of {cluster.local_size} workers on {facts.host or 'this machine'} sees all its GPUs and would take"
            f" them all; give each its own: {VISIBLE}=<local rank>, srun --gpus-per-task=1, or tfvolta launch."
        )
    return warnings


def network_problems(cluster: Cluster, environ: Mapping[str, str], started: bool = False) -> list[Problem]:
    """Hosts without an address, an own address that is another machine's, and an own port that is taken.

    Inside Kubernetes names appear when their pods do, and a service may stand before a pod; there the meeting of the
    workers finds out instead.

    Args:
        cluster: Who trains together; nothing is known of one without addresses.
        environ: The process environment.
        started: Whether this process may itself be listening already.
    """
    own = cluster.host
    if own is None or cluster.port is None or environ.get(_KUBERNETES):
        return []
    names: dict[str, str] = {}
    for job, index, address in cluster.members():
        names.setdefault(host_of(address), f"{job} {index}")
    addresses = look_up([*names, own])
    problems = [_unresolvable(names.get(host, cluster.name), host) for host in addresses if not addresses[host]]
    problems += _one_socket_twice(cluster, addresses) or _unreachable(cluster, addresses)
    if not addresses[own]:
        return problems
    here = any(_is_here(address) for address in addresses[own])
    if not here:
        return [*problems, _elsewhere(cluster, own, addresses)]
    return problems if started else [*problems, *_port_taken(cluster, addresses[own])]


def look_up(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Addresses of hosts; empty for one that has none."""
    unique = list(dict.fromkeys(hosts))
    with concurrent.futures.ThreadPoolExecutor(min(_LOOKUPS, len(unique)) or 1) as pool:
        return dict(zip(unique, pool.map(_addresses, unique)))


def _addresses(host: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_here(address: str) -> bool:
    """Whether an address belongs to this machine: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def _unresolvable(name: str, host: str) -> Problem:
    return Problem(
        where=f"{name}: {host}",
        expected="a host name that this machine can resolve",
        received=f"no address for {host}",
        why="neither /etc/hosts nor a name server knows it",
        fix=f"correct the name, use an IP address, or add {host} to /etc/hosts on every machine",
    )


def _one_socket_twice(cluster: Cluster, addresses: Mapping[str, tuple[str, ...]]) -> list[Problem]:
    """The problems with names that are one machine, and one port for both."""
    taken: dict[tuple[str, int], str] = {}
    found = []
    for job, index, address in cluster.members():
        name = f"{job} {index}"
        owners = [taken.setdefault((at, port_of(address)), name) for at in addresses.get(host_of(address), ())]
        other = next((owner for owner in owners if owner != name), None)
        if other is not None:
            found.append(
                Problem(
                    where=f"{name}: {address}",
                    expected="a port of its own for each process of one machine",
                    received=f"the machine and the port of {other}",
                    why="two processes cannot listen on one port; one of them would fail or wait for ever",
                    fix="give each process on one machine another port, or correct the host names",
                )
            )
    return found


def _unreachable(cluster: Cluster, addresses: Mapping[str, tuple[str, ...]]) -> list[Problem]:
    """The problem with a loopback address where others of the cluster are on other machines."""
    members = cluster.members()
    local = next((each for each in members if is_loopback(host_of(each[2]))), None)
    away = next(
        (each for each in members if (at := addresses.get(host_of(each[2]), ())) and not any(map(_is_here, at))), None
    )
    if local is None or away is None:
        return []
    return [
        Problem(
            where=f"{local[0]} {local[1]}: {local[2]}",
            expected="an address that all machines reach",
            received=f"{host_of(local[2])}, while {away[0]} {away[1]} is at {away[2]}",
            why=f"{host_of(local[2])} means on each machine that machine itself",
            fix="write the machine's name or its address in the network",
        )
    ]


def _elsewhere(cluster: Cluster, own: str, addresses: Mapping[str, tuple[str, ...]]) -> Problem:
    here = [
        (job, index)
        for job, index, address in cluster.members()
        if not is_loopback(host_of(address)) and any(_is_here(found) for found in addresses.get(host_of(address), ()))
    ]
    hint = f"this machine is that of {here[0][0]} {here[0][1]}: give this process that task" if here else ""
    return Problem(
        where=f"{cluster.name}: {cluster.address}",
        expected="an address of this machine",
        received=f"{own} is {', '.join(addresses[own])}, and this machine has no such address",
        why="TensorFlow would listen here while the others look for this worker there, and all would wait",
        fix=hint or "give each process the task whose address is its own machine's",
    )


def _port_taken(cluster: Cluster, addresses: Sequence[str]) -> list[Problem]:
    """The problem with an own port on which another process listens; found by binding to it."""
    assert cluster.port is not None
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Connections of an ended run may linger; that is no obstacle to a server.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, cluster.port))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    return [_taken(cluster, error)]
    return []


def _taken(cluster: Cluster, error: OSError) -> Problem:
    in_use = error.errno == errno.EADDRINUSE
    if in_use:
        why = (
            "TensorFlow's server of this worker listens there; who has the port is a process of an earlier run, a "
            f"stranger, or a second process that was started as {cluster.name} of this run"
        )
    else:
        why = "ports below 1024 need privileges"
    port = "in TF_CONFIG" if cluster.resolver == "tf_config" else "with cluster.port"
    return Problem(
        where=f"{cluster.name}: {cluster.address}",
        expected=f"port {cluster.port} free on this machine",
        received="another process listens on it" if in_use else "this user may not listen on it",
        why=why,
        fix="where two processes of this run have one index, correct it; otherwise end that process "
        f"(ss -ltnp 'sport = :{cluster.port}' shows it), or choose another port {port}",
    )
