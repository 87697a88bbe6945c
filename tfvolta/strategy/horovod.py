"""Kind ``horovod``: one process for each GPU, whose gradients Horovod reduces between backward pass and optimiser."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional

from tfvolta.errors import PlanError, Problem
from tfvolta.facts.horovod import fault
from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.jit_decision import HOROVOD_FAULT
from tfvolta.outcome import Outcome, Status
from tfvolta.strategy import communication, devices
from tfvolta.strategy.devices import Inventory, planned, where
from tfvolta.strategy.kind import Kind
from tfvolta.strategy.membership import cluster_of, read_cluster

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts

START = "start it with: horovodrun -np 2 python SCRIPT, mpirun, or tfvolta launch --workers 2 SCRIPT"
# Why, and what instead, where a config chooses the devices.
_DEVICES = (
    "each rank has one GPU, that of its number on its machine, or the CPU where there is none",
    "remove devices; devices.visible says among which GPUs a rank's number counts",
)
_CPUS = (
    "a rank trains one replica; more of them are more processes",
    "remove logical_cpus and start more ranks: horovodrun -np {cpus} python SCRIPT",
)
_BATCH = "A batch given to fit is each rank's own: the global batch is the number of ranks times as large"


class Horovod(Kind):
    """Horovod's ranks, each a process with a replica of its own; ``tf.distribute`` stays at its default strategy.

    Every rank reads data of its own and computes the mean loss of its own batch; the gradients are averaged over ranks.
    """

    name = "horovod"
    description = "one replica in each of several processes, gradients reduced by Horovod"
    keys = (
        "strategy.kind",
        "communication.implementation",
        "communication.pack_mb",
        "communication.hierarchical",
        "communication.cycle_time_ms",
        "communication.groups",
        "communication.compression",
        "communication.reduce_every",
    )

    def check(self, config: Config, inventory: Inventory) -> list[Problem]:
        """Devices cannot be chosen, and Horovod has its own all-reduces."""
        return [
            *communication.missing_keys(config, self.name),
            *devices.chosen_outside(config, self.name, _DEVICES, _CPUS),
            *_implementation(config, inventory),
        ]

    def problems(self, config: Config, facts: Facts, environ: Optional[Mapping[str, str]] = None) -> list[Problem]:
        """Also: Horovod that is not there or of another TensorFlow, and ranks that are not there."""
        found = self.check(config, planned(config, facts))
        if facts.source == "live":
            unusable = fault(facts)
            found += [] if unusable is None else [unusable]
        known, cluster = read_cluster(config, facts, environ)
        if known and (cluster is None or cluster.world_size < 2):
            found.append(_alone(config))
        return found

    def replica_devices(self, config: Config, inventory: Inventory) -> tuple[str, ...]:
        """The one device of a rank: its GPU, or the CPU."""
        return (inventory.default_device,)

    def workers(self, config: Config, facts: Facts) -> int:
        """Ranks; 1 where it is not known."""
        cluster = cluster_of(config, facts)
        return 1 if cluster is None else cluster.world_size

    def jit_fault(self) -> str:
        """Why a train step with Horovod's operations is not compiled."""
        return HOROVOD_FAULT

    def forecast(self, config: Config, facts: Facts) -> Forecast:
        """How many ranks there are, and what a batch is to them."""
        device = planned(config, facts).default_device
        place = "a GPU of its own" if device.startswith("GPU") else "the CPU"
        cluster = cluster_of(config, facts)
        if cluster is None:
            return Forecast(Status.APPLIED, f"Each rank trains one replica on {place}. {_BATCH}.")
        size = cluster.world_size
        message = f"{size} ranks, each with one replica on {place}. {_BATCH}: {size} x batch_size."
        return Forecast(Status.APPLIED, message)

    def forecast_communication(self, config: Config, facts: Facts) -> Optional[Forecast]:
        """What Horovod does with the gradients."""
        gpus = planned(config, facts).gpus
        how = "NCCL, where Horovod was built with it" if gpus else "Gloo or MPI, whichever joins the ranks"
        groups = config.get("communication.groups")
        each = f"in {groups} groups" if groups else "each as soon as it is there, fused by Horovod"
        message = f"Gradients are averaged over the ranks with {how}, {each}; verified in the traced train step."
        return Forecast(Status.APPLIED, message)

    def build(self, config: Config, context: Context) -> Any:
        """TensorFlow's default strategy, with Horovod initialised.

        Raises:
            PlanError: Horovod cannot be imported, or has no other rank.
        """
        from tfvolta.strategy.horovod_start import start

        start(config)
        return context.tensorflow.distribute.get_strategy()

    def verify(self, strategy: Any, config: Config, model: Any, global_batch: Optional[int] = None) -> Outcome:
        """Whether this process is one of several ranks, and where its model is.

        Args:
            global_batch: Examples of one batch given to ``fit``, which here is the batch of this rank.
        """
        ranks = live_ranks()
        if ranks is None:
            return Outcome(Status.LATE, "Horovod was never initialised in this process.", {"kind": self.name})
        observed: dict[str, Any] = {
            "kind": self.name,
            "strategy": "Horovod",
            "replicas": ranks.size,
            "rank": ranks.rank,
            "controller": ranks.controller,
        }
        own = model.distribute_strategy
        if own.num_replicas_in_sync > 1:
            return Outcome(
                Status.NO_EFFECT,
                f"The model was made under a {type(own).__name__} of its own with {own.num_replicas_in_sync} replicas, "
                "which reduces gradients by itself. Make it outside of strategy.scope().",
                {**observed, "strategy": type(own).__name__},
            )
        if ranks.size < 2:
            return Outcome(Status.NO_EFFECT, "Horovod has one rank: nothing is distributed.", observed, fix=START)
        batch = f"{_BATCH}."
        if global_batch is not None:
            observed.update(per_rank_batch=global_batch, global_batch=global_batch * ranks.size)
            batch = f"The batch of {global_batch} is this rank's; the global batch is {global_batch * ranks.size}."
        message = f"Rank {ranks.rank} of {ranks.size}, over {ranks.controller}. {batch}"
        return Outcome(Status.APPLIED, f"{message}{_batch_norm(model, ranks.size, observed)}", observed)

    def verify_communication(self, config: Config, model: Any, strategy: Any) -> Optional[Outcome]:
        """What of the gradients Horovod reduces in the traced train step."""
        from tfvolta.strategy.horovod_verification import verify_reduction

        return verify_reduction(model, config)


def live_ranks() -> Optional[Any]:
    """``tfvolta.bridge.horovod_ranks.Ranks`` of this process; None before Horovod was initialised."""
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is None or not horovod.is_initialized():
        return None
    from tfvolta.bridge import horovod_ranks

    return horovod_ranks.ranks()


def stray_section(config: Config) -> Optional[Problem]:
    """A section ``horovod`` under another kind; None where there is none."""
    kind = config.get("strategy.kind") or "default"
    if config.horovod is None or kind == Horovod.name:
        return None
    given = [key for key in config.provenance if key.startswith("horovod.")]
    return Problem(
        where=where(config, given[0] if given else "horovod.average_metrics"),
        expected="strategy.kind: horovod with a section horovod",
        received=f"strategy.kind: {kind}",
        why="only Horovod has these settings",
        fix="set strategy.kind: horovod, or remove the section",
    )


def _alone(config: Config) -> Problem:
    return Problem(
        where=where(config, "strategy.kind"),
        expected="two ranks or more",
        received="one process: nothing in the environment names others",
        why="Horovod joins processes that a launcher has started; by itself it would train alone, without a word",
        fix=f"{START}; or set strategy.kind: default",
    )


def _implementation(config: Config, inventory: Inventory) -> Iterator[Problem]:
    asked, place = communication.implementation(config), where(config, "communication.implementation")
    if asked in ("ring", "hierarchical_copy", "reduction_to_one_device"):
        hierarchy = ", and hierarchical: true for machines of several GPUs" if asked == "hierarchical_copy" else ""
        yield Problem(
            where=place,
            expected="auto or nccl",
            received=asked,
            why="it is tf.distribute's; Horovod reduces with what it was built with: NCCL, Gloo or MPI",
            fix=f"set implementation: auto{hierarchy}; nccl.algorithm: Ring insists on a ring",
        )
    if asked == "nccl" and not inventory.gpus:
        yield Problem(
            where=place,
            expected="auto on CPU devices",
            received="nccl",
            why="NCCL reduces on GPUs only" + (f" ({inventory.note})" if inventory.note else ""),
            fix="set implementation: auto, or train on GPUs",
        )


def _batch_norm(model: Any, size: int, observed: dict[str, Any]) -> str:
    """What becomes of batch normalisation: nothing of Keras's synchronises ranks."""
    from tfvolta.strategy.batch_norm import batch_norm_layers

    names = batch_norm_layers(model)
    if not names:
        return ""
    observed["batch_norm_not_synchronized"] = names
    return (
        f" BatchNormalization in {', '.join(names)} normalises with a rank's own batch, synchronized=True or not, and "
        f"each of {size} ranks keeps moving statistics of its own; those of rank 0 are saved."
    )


def unusable(error: Exception) -> PlanError:
    """The error for a Horovod that cannot be imported or initialised."""
    from tfvolta.facts.horovod import INSTALL, KNOWN

    name = type(error).__name__
    text = " ".join(str(error).split())[:300]
    return PlanError(
        "Horovod cannot be used in this process.",
        [Problem("import horovod.tensorflow", f"Horovod with {KNOWN}", f"{name}: {text}", "", INSTALL)],
    )
