"""Kind ``multi_worker_mirrored``: several processes, each with its devices, gradients all-reduced every step."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional

from tfvolta.errors import ClusterError, LateError, PlanError, Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment
from tfvolta.strategy import communication, devices, history
from tfvolta.strategy.devices import Inventory, planned, where
from tfvolta.strategy.kind import Kind, describe, describe_batch
from tfvolta.strategy.membership import cluster_of, read_cluster, too_few_workers

if TYPE_CHECKING:
    from tfvolta.cluster import Cluster
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts

_BEFORE = "call tfvolta.build_strategy(config) before the first tensor, data set, layer or optimizer"


class MultiWorkerMirrored(Kind):
    """``tf.distribute.MultiWorkerMirroredStrategy``: a copy of the variables on each device of each worker.

    On GPUs NCCL is asked for by name: TensorFlow's own default is a ring over the network's sockets, on GPUs too.
    """

    name = "multi_worker_mirrored"
    description = "one replica on each GPU (or the CPU) of several processes, gradients all-reduced every step"
    keys = ("strategy.kind", "communication.implementation", "communication.pack_mb", "communication.timeout_seconds")
    starts_tensorflow = True

    def check(self, config: Config, inventory: Inventory) -> list[Problem]:
        """An all-reduce that there is between processes; devices cannot be chosen."""
        return [
            *communication.missing_keys(config, self.name),
            *devices.chosen_outside(config, self.name, _DEVICES, _CPUS),
            *_implementation(config, inventory),
        ]

    def problems(self, config: Config, facts: Facts, environ: Optional[Mapping[str, str]] = None) -> list[Problem]:
        """Also: workers that are not there."""
        found = self.check(config, planned(config, facts))
        known, cluster = read_cluster(config, facts, environ)
        few = too_few_workers(config, cluster, self.name) if known else None
        return found if few is None else [*found, few]

    def inventory(self, tensorflow: Any) -> Inventory:
        """The devices without starting TensorFlow, which the strategy must do itself."""
        return Inventory(gpus=len(tensorflow.config.get_visible_devices("GPU")), cpus=1)

    def replica_devices(self, config: Config, inventory: Inventory) -> tuple[str, ...]:
        """Every visible GPU of this process, or its first CPU."""
        return inventory.replicas if inventory.gpus else ("CPU:0",)

    def workers(self, config: Config, facts: Facts) -> int:
        """Processes that train together; 1 where it is not known."""
        cluster = cluster_of(config, facts)
        return 1 if cluster is None else cluster.num_workers

    def forecast(self, config: Config, facts: Facts) -> Forecast:
        """How many replicas there are in all, and how a batch is divided."""
        names = self.replica_devices(config, planned(config, facts))
        cluster = cluster_of(config, facts)
        if cluster is None:
            return Forecast(
                Status.APPLIED, f"In each worker: {describe(names)} {_GLOBAL}", "a launcher starts several workers"
            )
        replicas = cluster.num_workers * len(names)
        message = f"{cluster.num_workers} workers with {len(names)} replica{'s' * (len(names) > 1)} each"
        return Forecast(Status.APPLIED, f"{message} ({', '.join(names)}). {describe_batch(replicas)} {_EQUAL}")

    def build(self, config: Config, context: Context) -> Any:
        """The strategy; waits until all workers are there. The same object when it is built again.

        Raises:
            LateError: TensorFlow has been started already.
            PlanError: There are no other workers, or TensorFlow sees fewer than the cluster names.
        """
        from tfvolta.bridge import all_reduce
        from tfvolta.bridge.worker_service import serve_workers

        tf, cluster = context.tensorflow, _cluster(config, context, self.name)
        names = self.replica_devices(config, self.inventory(tf))
        asked, size = communication.implementation(config), config.get("communication.pack_mb")
        build = history.Build(names, asked, pack_mb=size, workers=cluster.num_workers)
        known = history.recall(build)
        if known is not None:
            return known
        history.check(build, where(config, "strategy.kind"))
        if context.closed(Moment.CONTEXT_INITIALIZED) is not None:
            raise LateError("The strategy comes too late.", [_late(config)])
        if "TF_CONFIG" not in context.environ:
            context.environ["TF_CONFIG"] = cluster.tf_config_text()
        strategy = _join(tf, _options(config, tf, names), cluster)
        _end_on_sigterm()
        replicas, implied = int(strategy.num_replicas_in_sync), cluster.num_workers * len(names)
        if replicas < implied:
            raise PlanError("TensorFlow does not see all workers.", [_lower(config, cluster, replicas, implied)])
        all_reduce.install(strategy, communication.pack_bytes(config))
        serve_workers(context.stack)
        history.remember(build, strategy)
        return strategy

    def verify(self, strategy: Any, config: Config, model: Any, global_batch: Optional[int] = None) -> Outcome:
        """Whether a model trains with all workers: its own strategy has all replicas, and its variables are on them."""
        own, wanted = int(model.distribute_strategy.num_replicas_in_sync), int(strategy.num_replicas_in_sync)
        if own < wanted:
            return Outcome(
                Status.LATE,
                f"The model trains on {own} replica{'s' * (own > 1)} by itself, and the workers have {wanted}: it was"
                " made outside the strategy. Make and compile it inside `with strategy.scope():`.",
                {"kind": self.name, "strategy": type(model.distribute_strategy).__name__, "replicas": own},
            )
        outcome = super().verify(strategy, config, model, global_batch)
        if outcome.status is not Status.APPLIED:
            return outcome
        local = len(strategy.extended.worker_devices)
        observed = {**outcome.observed, "workers": wanted // local}
        message = f"{wanted // local} workers, in each: {outcome.message}"
        return Outcome(outcome.status, message, observed)


# Why, and what instead, where a config chooses the devices.
_DEVICES = (
    "MultiWorkerMirroredStrategy takes every visible GPU of its process, or the CPU where there is none",
    "remove devices; devices.visible says which GPUs a process has",
)
_CPUS = (
    "MultiWorkerMirroredStrategy takes one CPU of each process, and leaves the others alone",
    "remove logical_cpus and start more workers: tfvolta launch --workers {cpus} SCRIPT",
)
_GLOBAL = "A batch given to fit is the global batch: every replica of every worker gets its part of it."
_EQUAL = "Every worker gives fit the same data; each takes its share."


def _options(config: Config, tensorflow: Any, names: tuple[str, ...]) -> Any:
    """What the collectives are asked for: an implementation by name on GPUs, a size of packs, and always a limit."""
    asked = communication.implementation(config)
    chosen = ("nccl" if names[0].startswith("GPU") else "ring") if asked == "auto" else asked
    return tensorflow.distribute.experimental.CommunicationOptions(
        bytes_per_pack=communication.pack_bytes(config),
        timeout_seconds=communication.timeout_seconds(config),
        implementation=getattr(tensorflow.distribute.experimental.CommunicationImplementation, chosen.upper()),
    )


def _end_on_sigterm() -> None:
    """Gives SIGTERM its meaning back, which TensorFlow's preemption notifier takes and does nothing with by itself.

    A script's own handler stays, and the checkpoint section sets one that saves first.
    Source: tensorflow/core/distributed_runtime/preemption/preemption_notifier.cc (xla/tsl in newer versions).
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _join(tensorflow: Any, options: Any, cluster: Cluster) -> Any:
    """The strategy, which starts this worker's server and waits for the others'."""
    try:
        return tensorflow.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except tensorflow.errors.UnknownError as error:
        if "gRPC server" not in str(error):
            raise
        problem = Problem(
            where=f"{cluster.name}: {cluster.address}",
            expected=f"TensorFlow's server of this worker on port {cluster.port}",
            received=str(error),
            why="another process listens on that port by now, or two workers' hosts are the same machine",
            fix=f"see who has it (ss -ltnp 'sport = :{cluster.port}'), and give each worker a port of its own"
            " (tfvolta cluster shows all addresses)",
        )
        raise ClusterError("This worker cannot join the cluster.", [problem]) from error


def _cluster(config: Config, context: Context, kind: str) -> Cluster:
    """The cluster of this process.

    Raises:
        PlanError: There is none that fits.
    """
    from tfvolta.cluster import resolve

    cluster = resolve(context.environ, config, context.facts)
    few = too_few_workers(config, cluster, kind)
    if few is not None or cluster is None:
        raise PlanError("This strategy cannot be built here.", [few] if few is not None else [])
    return cluster


def _implementation(config: Config, inventory: Inventory) -> Iterator[Problem]:
    asked, place = communication.implementation(config), where(config, "communication.implementation")
    if asked in ("hierarchical_copy", "reduction_to_one_device"):
        yield Problem(
            where=place,
            expected="auto, nccl or ring",
            received=asked,
            why="it copies between the devices of one process; between processes TensorFlow has collectives only",
            fix="set implementation: nccl (NCCL forms its own rings and trees; nccl.algorithm insists on one)"
            if inventory.gpus
            else "set implementation: auto",
        )
    if asked == "nccl" and not inventory.gpus:
        yield Problem(
            where=place,
            expected="auto or ring on CPU devices",
            received="nccl",
            why="NCCL reduces on GPUs only, and TensorFlow takes its own ring here without a word"
            + (f" ({inventory.note})" if inventory.note else ""),
            fix="set implementation: auto, or train on GPUs",
        )


def _late(config: Config) -> Problem:
    return Problem(
        where=where(config, "strategy.kind"),
        expected="MultiWorkerMirroredStrategy before anything else that starts TensorFlow",
        received="a process whose TensorFlow devices exist already",
        why="the server through which the workers meet is part of what TensorFlow starts: 'Collective ops must be "
        "configured at program startup'",
        fix=_BEFORE,
    )


def _lower(config: Config, cluster: Cluster, replicas: int, implied: int) -> Problem:
    return Problem(
        where=where(config, "strategy.kind"),
        expected=f"{implied} replicas: {cluster.num_workers} workers ({cluster.resolver})",
        received=f"{replicas}",
        why="TensorFlow read another cluster, so that processes would train models of their own",
        fix="let TF_CONFIG name the same workers in every process",
    )
