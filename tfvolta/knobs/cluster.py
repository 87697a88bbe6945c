"""Which processes train together: read from the environment, written for TensorFlow, seen in the strategy."""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, Optional

from tfvolta.cluster import Cluster
from tfvolta.cluster.checks import gpu_problems, gpu_warnings
from tfvolta.cluster.finding import NEED_ADDRESSES, SEVERAL, Surroundings
from tfvolta.cluster.resolution import find
from tfvolta.cluster.tf_config import VARIABLE
from tfvolta.errors import ClusterError, Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

# Jobs that compute no gradients.
SERVING = ("ps", "evaluator")
ALONE = "Nothing in the environment says that several processes train together: this is a run of one process."
ELSEWHERE = "Which processes train together is read from the launcher's environment when training starts."


def request_of(config: Any) -> Optional[dict[str, Any]]:
    """What the config says about the cluster; None where it neither has such a section nor a kind of several processes.

    Returns:
        ``kind``, ``resolver``, ``port``, ``parameter_servers``, and ``visible`` with the indices of named GPUs.
    """
    kind = str(config.get("strategy.kind") or "default")
    if config.cluster is None and kind not in SEVERAL:
        return None
    asked = Surroundings.of({}, config, None)
    visible = config.get("devices.visible")
    return {
        "kind": kind,
        "resolver": asked.resolver,
        "port": asked.port,
        "parameter_servers": asked.parameter_servers,
        "visible": visible if isinstance(visible, list) else None,
    }


def cluster_of(value: Mapping[str, Any], facts: Any, environ: Mapping[str, str]) -> Optional[Cluster]:
    """The cluster that an environment describes for a request.

    Raises:
        ClusterError: It cannot be used.
    """
    asked = {name: value[name] for name in ("kind", "resolver", "port", "parameter_servers")}
    return find(Surroundings(environ, known_host=facts.host, **asked))


def forecast_cluster(value: Mapping[str, Any], facts: Any) -> Cluster | Forecast:
    """This process's cluster, or what to forecast where there is none to speak of."""
    if facts.source != "live":
        return Forecast(Status.APPLIED, ELSEWHERE, "a launcher starts several processes")
    try:
        cluster = cluster_of(value, facts, os.environ)
    except ClusterError as error:
        return Forecast(Status.NOT_APPLICABLE, f"{error.summary.rstrip('.')}.")
    return Forecast(Status.NOT_APPLICABLE, ALONE) if cluster is None else cluster


class ClusterResolution(Knob):
    """Finds out which processes train together, and writes TF_CONFIG where only a launcher's own variables say so.

    Binds: when the strategy is created, which reads TF_CONFIG once.
    """

    name = "cluster"
    keys = ("cluster.resolver", "cluster.port", "cluster.parameter_servers")
    phase = Phase.ENVIRONMENT
    closes_at = Moment.STRATEGY_CREATED
    move_to = "call tfvolta.build_strategy(config) before any tf.distribute strategy is made"
    techniques = ("C2",)

    def value(self, config: Any) -> Optional[Any]:
        return request_of(config)

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        try:
            cluster = cluster_of(value, facts, environ)
        except ClusterError as error:
            return list(error.problems)
        if cluster is None:
            return []
        return gpu_problems(cluster, facts, environ, value["visible"])

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        cluster = forecast_cluster(value, facts)
        if isinstance(cluster, Forecast):
            return cluster
        written = [f"Writes {VARIABLE}."] if _writes(value, cluster) else []
        sentences = [*cluster.explain(), *written, *gpu_warnings(cluster, facts, os.environ, value["kind"])]
        return Forecast(Status.APPLIED, " ".join(sentences))

    def apply(self, value: Any, context: Context) -> None:
        cluster = cluster_of(value, context.facts, context.environ)
        context.saved.setdefault(self.name, {"cluster": cluster, "former": context.environ.get(VARIABLE)})
        if cluster is not None and _writes(value, cluster):
            context.environ[VARIABLE] = cluster.tf_config_text()

    def verify(self, value: Any, context: Context) -> Outcome:
        saved = context.saved.get(self.name)
        cluster = saved["cluster"] if saved else cluster_of(value, context.facts, context.environ)
        if cluster is None:
            return Outcome(Status.NOT_APPLICABLE, ALONE)
        observed = _observed(cluster)
        if saved and _writes(value, cluster) and context.environ.get(VARIABLE) != cluster.tf_config_text():
            message = f"{VARIABLE} was changed after tfvolta set it; take the other assignment out."
            return Outcome(Status.NO_EFFECT, message, observed)
        if value["kind"] == "horovod":
            return _verify_horovod(cluster, observed)
        if cluster.task_type in SERVING or (cluster.has_parameter_servers and cluster.task_type == "worker"):
            message = f"{cluster.explain()[0]} It trains nothing by itself; the chief sees whether it is connected."
            return Outcome(Status.UNVERIFIABLE, message, observed)
        strategy = getattr(context.model, "distribute_strategy", None) or context.strategy
        if strategy is None:
            return Outcome(Status.PENDING, f"{cluster.explain()[0]} The strategy will show whether it knows.", observed)
        return _verify_strategy(cluster, strategy, context, observed)

    def undo(self, context: Context) -> bool:
        saved = context.saved.pop(self.name, None) or {}
        if saved.get("former") is not None:
            context.environ[VARIABLE] = saved["former"]
        elif saved:
            context.environ.pop(VARIABLE, None)
        return context.closed(self.closes_at) is None


def _writes(value: Mapping[str, Any], cluster: Cluster) -> bool:
    return value["kind"] in NEED_ADDRESSES and cluster.resolver != "tf_config"


def _observed(cluster: Cluster) -> dict[str, Any]:
    return {
        "resolver": cluster.resolver,
        "task": cluster.name,
        "rank": cluster.rank,
        "world_size": cluster.world_size,
        "addresses": {job: list(tasks) for job, tasks in cluster.addresses.items()},
    }


def _verify_strategy(cluster: Cluster, strategy: Any, context: Context, observed: dict[str, Any]) -> Outcome:
    """Whether a live strategy has the workers that the cluster implies."""
    if cluster.has_parameter_servers:
        known, needed = _connected_workers(context.tensorflow), 1
    else:
        resolver = getattr(strategy, "cluster_resolver", None)
        jobs = resolver.cluster_spec().as_dict() if resolver is not None else {}
        known, needed = _workers_of({str(job): len(tasks) for job, tasks in jobs.items()}), cluster.num_workers
    replicas = int(strategy.num_replicas_in_sync)
    observed = {**observed, "strategy": type(strategy).__name__, "workers": known, "replicas": replicas}
    if known == cluster.num_workers and replicas >= needed:
        count = f"{known} worker{'s' * (known > 1)}"
        return Outcome(Status.APPLIED, f"{type(strategy).__name__} has {count}, as the cluster says.", observed)
    kind = "parameter_server" if cluster.has_parameter_servers else "multi_worker_mirrored"
    return Outcome(
        Status.NO_EFFECT,
        f"The cluster has {cluster.num_workers} workers ({cluster.resolver}), and {type(strategy).__name__} has {known}"
        f" with {replicas} replica{'s' * (replicas > 1)}: each process would train a model of its own.",
        observed,
        fix=f"set strategy.kind: {kind} and make the model inside the scope of tfvolta.build_strategy",
    )


def _connected_workers(tensorflow: Any) -> int:
    """Workers to which a coordinator is connected, seen in the devices that it can place operations on."""
    names = [device.name for device in tensorflow.config.list_logical_devices("CPU")]
    return len({name.split("/task:")[1].split("/")[0] for name in names if name.startswith("/job:worker/")})


def _workers_of(counts: Mapping[str, int]) -> int:
    """Workers that compute gradients, from the number of tasks of each job; one where no job is known."""
    return counts.get("worker", 0) + (0 if counts.get("ps") else counts.get("chief", 0)) or 1


def _verify_horovod(cluster: Cluster, observed: dict[str, Any]) -> Outcome:
    names = ("horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras")
    module = next((sys.modules[name] for name in names if name in sys.modules), None)
    if module is None or not module.is_initialized():
        return Outcome(Status.PENDING, f"{cluster.explain()[0]} Horovod has not started yet.", observed)
    size = int(module.size())
    observed = {**observed, "horovod_size": size}
    if size == cluster.world_size:
        return Outcome(Status.APPLIED, f"Horovod has {size} ranks, as {cluster.resolver} says.", observed)
    return Outcome(
        Status.NO_EFFECT,
        f"{cluster.resolver} started {cluster.world_size} processes, and Horovod has {size} ranks.",
        observed,
        fix="build Horovod with the launcher's communication (Gloo for horovodrun --gloo, MPI for mpirun)",
    )
