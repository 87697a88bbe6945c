"""Kind ``parameter_server``: variables on servers, workers that train on them without waiting for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from tfvolta.cluster import Cluster, resolve
from tfvolta.errors import PlanError, Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.preflight import default_timeout
from tfvolta.outcome import Outcome, Status
from tfvolta.strategy import communication
from tfvolta.strategy.devices import Inventory, where
from tfvolta.strategy.kind import Kind
from tfvolta.strategy.membership import cluster_of, read_cluster
from tfvolta.strategy.serving import Served, serve, serves
from tfvolta.strategy.sharding import (
    DEFAULT_LIMIT_MB,
    MIB,
    Placed,
    SizePartitioner,
    bytes_by_server,
    wrongly_split,
)

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts

__all__ = ["ParameterServer", "serve", "serves"]

_LAUNCH = "tfvolta launch --workers 2 --ps 1 train.py starts a chief, two workers and a parameter server"
_ASYNCHRONOUS = (
    "Each worker trains on a batch of its own and changes the variables without waiting for the others, so a gradient "
    "may be of weights that others have changed since: with one worker training is what it is in one process, with more"
    " of them it converges, and differs from run to run."
)
_BATCHES = (
    "A batch given to fit goes to one worker, whole. Metrics and weights are exact at the end of an epoch; a batch "
    "callback is called when its step was given out, a few steps before it is finished."
)
_KERAS2_BATCHES = (
    " Keras 2 refuses verbose=1, and callbacks of your own with batch hooks unless they set _supports_tf_logs = True."
)


class ParameterServer(Kind):
    """``tf.distribute.ParameterServerStrategy`` with a ``ClusterCoordinator``.

    The chief runs the script and computes nothing of it but what is between the steps. Workers and parameter servers
    serve: in their processes ``build`` does not return.
    """

    name = "parameter_server"
    description = "variables on parameter servers, workers that train on them without waiting for each other"
    keys = ("strategy.kind", "strategy.shard_above_mb")

    def check(self, config: Config, inventory: Inventory) -> list[Problem]:
        """What no cluster could make possible."""
        found = communication.missing_keys(config, self.name)
        if isinstance(config.get("strategy.devices"), list):
            found.append(_named_devices(config))
        if config.get("strategy.logical_cpus"):
            found.append(_split_cpus(config))
        if config.get("xla.jit") == "model":
            found.append(_compiled(config))
        if config.get("mixed_precision.policy") == "mixed_float16":
            found.append(_loss_scaling(config))
        if config.get("checkpoint.every_steps"):
            found.append(_checkpoint_in_mid_epoch(config))
        return found

    def problems(self, config: Config, facts: Facts, environ: Optional[Mapping[str, str]] = None) -> list[Problem]:
        """``check``, and the cluster that this process is in; recorded facts know of none."""
        found = super().problems(config, facts, environ)
        known, cluster = read_cluster(config, facts, environ)
        if known:
            found += cluster_problems(config, cluster)
        return found

    def inventory(self, tensorflow: Any) -> Inventory:
        """The devices without starting TensorFlow, which connecting to the cluster does."""
        return Inventory(gpus=len(tensorflow.config.get_visible_devices("GPU")), cpus=1)

    def replica_devices(self, config: Config, inventory: Inventory) -> tuple[str, ...]:
        """Those of one worker: replicas of different workers never wait for each other."""
        return tuple(name for name in inventory.names if name.startswith("GPU")) or ("CPU:0",)

    def forecast(self, config: Config, facts: Facts) -> Forecast:
        """Who does what, what is exact, and what is split."""
        limit = limit_mb(config)
        split = f"Variables above {limit} MiB are split over the parameter servers."
        batches = _BATCHES + (_KERAS2_BATCHES if facts.keras == "keras2" else "")
        return Forecast(Status.APPLIED, " ".join(filter(None, (_jobs(config, facts), _ASYNCHRONOUS, batches, split))))

    def build(self, config: Config, context: Context) -> Any:
        """The strategy in the chief. In a worker or parameter server it serves until the chief has finished.

        Raises:
            Served: This process served, and the chief has finished.
            ClusterError: A process is missing, or never came.
            LostError: The chief died while this process served.
        """
        from tfvolta.strategy.coordination import coordinate

        cluster = resolve(context.environ, config, context.facts)
        found = cluster_problems(config, cluster)
        if found or cluster is None:
            raise PlanError("These processes cannot train with parameter servers.", found)
        if serves(cluster):
            serve(cluster, timeout_seconds(config))
            raise Served(cluster.name)
        partitioner = SizePartitioner(limit_mb(config) * MIB, len(cluster.addresses["ps"]))
        made = coordinate(cluster, partitioner, timeout_seconds(config))
        context.bridge.coordinate_fit()
        return made.strategy

    def verify(self, strategy: Any, config: Config, model: Any, global_batch: Optional[int] = None) -> Outcome:
        """Where every variable lives, into how many shards the large ones are split, and how full each server is."""
        from tfvolta.bridge import bridge_for

        parts = bridge_for(model).served_parts(model)
        placed = _placed(parts)
        slots = _placed(bridge_for(model).served_slots(model))
        observed = _observed(strategy, placed, slots)
        if not placed:
            message = "The model has no variables yet, so nothing shows where it trains."
            return Outcome(Status.UNVERIFIABLE, message, observed)
        if model.distribute_strategy is not strategy:
            return Outcome(
                Status.LATE,
                f"The model's variables are on {', '.join(observed['bytes_per_server'])}: it was made outside the "
                "strategy. Make and compile it inside `with strategy.scope():`.",
                observed,
            )
        elsewhere = [name for name, each in placed.items() if not all(part.server.startswith("ps ") for part in each)]
        if elsewhere:
            return Outcome(Status.NO_EFFECT, f"Not on a parameter server: {', '.join(elsewhere)}.", observed)
        rows = {name: sum(part.rows for part in each) for name, each in parts.items()}
        servers = len(strategy.cluster_resolver.cluster_spec().as_dict()["ps"])
        wrong = wrongly_split(placed, rows, limit_mb(config) * MIB, servers)
        if wrong:
            return Outcome(Status.NO_EFFECT, f"Not split as asked for: {'; '.join(wrong)}.", observed)
        return Outcome(Status.APPLIED, _applied(observed, limit_mb(config)), observed)


def limit_mb(config: Config) -> int:
    """Up to this size, in MiB, a variable stays in one piece."""
    return int(config.get("strategy.shard_above_mb") or DEFAULT_LIMIT_MB)


def timeout_seconds(config: Config) -> float:
    """How long processes wait for each other."""
    given = config.get("cluster.preflight_timeout_seconds")
    return default_timeout() if given is None else float(given)


def cluster_problems(config: Config, cluster: Optional[Cluster]) -> list[Problem]:
    """What a cluster lacks for this strategy, each with the command that makes it."""
    place = where(config, "strategy.kind")
    expected = "a chief, at least one worker and at least one parameter server"
    if cluster is None:
        why = "this strategy has its variables in other processes, and nothing in the environment names any"
        return [Problem(place, expected, "one process", why, _LAUNCH)]
    found = []
    for job, does in (
        ("chief", "runs the script and gives the steps out"),
        ("worker", "computes the steps"),
        ("ps", "holds the variables"),
    ):
        if not cluster.addresses.get(job):
            jobs = ", ".join(f"{len(tasks)} {name}" for name, tasks in cluster.addresses.items()) or "no addresses"
            fix = f'add "{job}": ["host:port"] to the cluster of every process; {_LAUNCH}'
            found.append(Problem(f"{place}: no {job}", expected, jobs, f"the {job} {does}", fix))
    if cluster.task_type not in ("chief", "worker", "ps"):
        why = "an evaluator is no part of this strategy: evaluate and validation_data run on its workers"
        fix = "give this process no task of the cluster, or use validation_data"
        found.append(Problem(f"{place}: task", "chief, worker or ps", cluster.task_type, why, fix))
    return found


def _placed(parts: Mapping[str, Any]) -> dict[str, list[Placed]]:
    return {name: [Placed(name, part.device, part.size_bytes) for part in each] for name, each in parts.items()}


def _observed(strategy: Any, placed: Mapping[str, list[Placed]], slots: Mapping[str, list[Placed]]) -> dict[str, Any]:
    every = [part for each in (*placed.values(), *slots.values()) for part in each]
    return {
        "kind": ParameterServer.name,
        "strategy": type(strategy).__name__,
        "replicas": int(strategy.num_replicas_in_sync),
        "weights": len(placed),
        "optimizer_variables": len(slots),
        "bytes_per_server": bytes_by_server(every),
        "sharded": {
            name: [{"server": part.server, "bytes": part.size_bytes} for part in parts]
            for name, parts in placed.items()
            if len(parts) > 1
        },
    }


def _applied(observed: Mapping[str, Any], limit: int) -> str:
    sizes = ", ".join(f"{server} {size / MIB:.1f} MiB" for server, size in observed["bytes_per_server"].items())
    shards = observed["sharded"]
    split = f"above {limit} MiB and in shards: {', '.join(shards)}" if shards else f"none is above {limit} MiB"
    return (
        f"{observed['weights']} weights and {observed['optimizer_variables']} variables of the optimizer on parameter "
        f"servers ({sizes}); {split}."
    )


def _jobs(config: Config, facts: Facts) -> str:
    """One sentence on the cluster of this process, where there is one."""
    cluster = cluster_of(config, facts)
    if cluster is None or not cluster.has_parameter_servers:
        return ""
    servers = len(cluster.addresses["ps"])
    return (
        f"A chief, {cluster.num_workers} worker{'s' * (cluster.num_workers > 1)} and {servers} parameter "
        f"server{'s' * (servers > 1)}."
    )


def _named_devices(config: Config) -> Problem:
    return Problem(
        where=where(config, "strategy.devices"),
        expected="devices: all with strategy.kind: parameter_server",
        received=f"devices: [{', '.join(config.get('strategy.devices'))}]",
        why="each worker computes with the GPUs that it sees, and every worker must have as many",
        fix="remove devices, and set devices.visible or CUDA_VISIBLE_DEVICES in the workers",
    )


def _split_cpus(config: Config) -> Problem:
    return Problem(
        where=where(config, "strategy.logical_cpus"),
        expected="one CPU device with strategy.kind: parameter_server",
        received=f"logical_cpus: {config.get('strategy.logical_cpus')}",
        why="a worker without a GPU computes on its first CPU device, whatever others there are",
        fix="remove logical_cpus, and start more workers: tfvolta launch --workers 4 --ps 1 train.py",
    )


def _compiled(config: Config) -> Problem:
    return Problem(
        where=where(config, "xla.jit"),
        expected="xla.jit: auto, clustering or off with strategy.kind: parameter_server",
        received="xla.jit: model",
        why="XLA compiles for the devices of one process, and the variables of a step are in others",
        fix="set xla.jit: auto",
    )


def _checkpoint_in_mid_epoch(config: Config) -> Problem:
    return Problem(
        where=where(config, "checkpoint.every_steps"),
        expected="every_epochs with strategy.kind: parameter_server",
        received=f"every_steps: {config.get('checkpoint.every_steps')}",
        why="workers are in different batches at any moment, so that no batch can be named from which to go on",
        fix="set checkpoint.every_epochs, and a smaller steps_per_epoch for more checkpoints",
    )


def _loss_scaling(config: Config) -> Problem:
    return Problem(
        where=where(config, "mixed_precision.policy"),
        expected="float32 or mixed_bfloat16 with strategy.kind: parameter_server",
        received="mixed_float16",
        why="float16 needs a loss scale that all workers share, and a worker may change it between another's loss and "
        "its gradients; Keras 2 refuses its LossScaleOptimizer under this strategy for that reason",
        fix="set policy: mixed_bfloat16 (no loss scale needed), or strategy.kind: multi_worker_mirrored",
    )
