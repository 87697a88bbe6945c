"""An Indexed Job of Kubernetes with a headless service; TFJob sets TF_CONFIG and MPIJob Open MPI's variables instead.

TensorFlow's own resolver asks the API server, for which a pod has no rights by default. Here nothing is asked: pods of
an Indexed Job are named ``JOB-INDEX``, and the service gives them names that the others can resolve.

Source: Kubernetes, "Job with Pod-to-Pod Communication" and "Indexed Job".
"""

from __future__ import annotations

import re
from typing import Optional

from tfvolta.cluster.finding import Finding, Resolver, Surroundings, rank_problem, whole_numbers
from tfvolta.cluster.ports import job_port
from tfvolta.cluster.roles import from_hosts
from tfvolta.errors import Problem

INDEX, POD = "JOB_COMPLETION_INDEX", "HOSTNAME"
WORKERS, SERVICE = "TFVOLTA_WORKERS", "TFVOLTA_SERVICE"


def _mark(surroundings: Surroundings) -> Optional[str]:
    return surroundings.first_of(INDEX)


def _missing(surroundings: Surroundings) -> tuple[str, ...]:
    return () if surroundings.environ.get(INDEX) else (INDEX,)


def read(surroundings: Surroundings) -> Finding:
    """The pods of this Indexed Job, or everything that is wrong with the variables."""
    environ = surroundings.environ
    if not environ.get(WORKERS):
        return Finding(problems=(_no_count(),)) if _must(surroundings) else Finding()
    numbers, problems = whole_numbers({name: environ[name] for name in (INDEX, WORKERS)})
    if problems:
        return Finding(problems=tuple(problems))
    index, size = numbers[INDEX], numbers[WORKERS]
    if size == 1:
        return Finding()
    problems = rank_problem(INDEX, index, size)
    pod = environ.get(POD) or surroundings.host
    name = re.fullmatch(rf"(.+)-{index}", pod.split(".")[0])
    if name is None:
        problems.append(_other_name(pod, index))
    service = environ.get(SERVICE) or _service(surroundings)
    if not service:
        problems.append(_no_service())
    if problems or name is None:
        return Finding(problems=tuple(problems))
    hosts = [f"{name[1]}-{number}.{service}" for number in range(size)]
    port = surroundings.port or job_port(name[1])
    found = (
        f"Kubernetes Indexed Job {name[1]}: pod {index} of {size} ({INDEX}, {WORKERS}), behind the service {service}.",
        f"Port {port}, from {'cluster.port' if surroundings.port else 'the name of the job'}.",
    )
    return from_hosts("kubernetes", surroundings, hosts, index, port, found)


def _must(surroundings: Surroundings) -> bool:
    """Whether a count is needed: an Indexed Job of independent pods is as usual as one of workers."""
    return surroundings.resolver == "kubernetes" or surroundings.kind in ("multi_worker_mirrored", "parameter_server")


def _service(surroundings: Surroundings) -> str:
    """The subdomain of this pod, which Kubernetes writes into its full name: POD.SERVICE.NAMESPACE.svc.DOMAIN."""
    labels = surroundings.full_host.split(".")
    return labels[1] if len(labels) > 3 and "svc" in labels[2:] else ""


def _no_count() -> Problem:
    return Problem(
        where=f"environment: {WORKERS}",
        expected="the number of pods that train together, which is the job's completions",
        received="nothing",
        why="Kubernetes tells a pod its index and not how many there are",
        fix=f'add to the container: env: [{{name: {WORKERS}, value: "4"}}], with the number of completions',
    )


def _other_name(pod: str, index: int) -> Problem:
    return Problem(
        where=f"environment: {POD}",
        expected=f"the name that an Indexed Job gives its pods, NAME-{index}",
        received=pod,
        why="the names of the other pods follow from it",
        fix="set completionMode: Indexed, and neither hostname nor hostNetwork in the pod's template",
    )


def _no_service() -> Problem:
    return Problem(
        where=f"environment: {SERVICE}",
        expected="the headless service of the job's pods",
        received="nothing, and the pod's full name holds none",
        why="without a service the pods have no names that the others can resolve",
        fix=f"set subdomain: SERVICE in the pod's template, with a service of clusterIP: None; or set {SERVICE}",
    )


RESOLVER = Resolver("kubernetes", _mark, read, _missing)
