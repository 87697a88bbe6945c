"""What a strategy kind is: one way of spreading training over devices."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.outcome import Outcome, Status
from tfvolta.strategy import communication, devices
from tfvolta.strategy.devices import Inventory
from tfvolta.strategy.packing import devices_of, verify_packing

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


class Kind(abc.ABC):
    """One strategy kind.

    ``check`` holds the kind's rules and is asked twice: at plan time about the devices that a machine will have, and
    when the strategy is built about those that the process does have.

    Attributes:
        name: As in ``strategy.kind``.
        description: One sentence for a list of kinds.
        keys: Config keys that it takes.
        starts_tensorflow: Whether its strategy must be made before anything else starts TensorFlow's devices.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    starts_tensorflow: ClassVar[bool] = False

    @abc.abstractmethod
    def check(self, config: Config, inventory: Inventory) -> list[Problem]:
        """Everything in the config that this kind cannot do on these devices."""

    @abc.abstractmethod
    def replica_devices(self, config: Config, inventory: Inventory) -> tuple[str, ...]:
        """The devices of the replicas, one each."""

    @abc.abstractmethod
    def forecast(self, config: Config, facts: Facts) -> Forecast:
        """What will happen on the machine that ``facts`` describe."""

    @abc.abstractmethod
    def build(self, config: Config, context: Context) -> Any:
        """The ``tf.distribute.Strategy``; ``check`` has found nothing by then."""

    def problems(self, config: Config, facts: Facts, environ: Optional[Mapping[str, str]] = None) -> list[Problem]:
        """``check`` at plan time, without TensorFlow.

        Args:
            environ: What the processes of a cluster are read from; this process's environment where None.
        """
        return self.check(config, devices.planned(config, facts))

    def inventory(self, tensorflow: Any) -> Inventory:
        """The devices that this process has. Initialises the eager context, unless the kind must do that itself."""
        return devices.live(tensorflow)

    def workers(self, config: Config, facts: Facts) -> int:
        """Processes whose replicas train in step; 1 where there are no others, or where it is not known."""
        return 1

    def jit_fault(self) -> str:
        """Why XLA compiles no train step under this kind, whatever the devices; empty where nothing speaks against."""
        return ""

    def forecast_communication(self, config: Config, facts: Facts) -> Optional[Forecast]:
        """What the communication section will do; None where it is as under any tf.distribute strategy."""
        return None

    def verify_communication(self, config: Config, model: Any, strategy: Any) -> Optional[Outcome]:
        """How the communication section ended in a model with a traced train step; None where nothing is reduced.

        Args:
            strategy: That of the model.
        """
        if strategy.num_replicas_in_sync > 1 or communication.asked(config):
            return verify_packing(model, config, strategy)
        return None

    def verify(self, strategy: Any, config: Config, model: Any, global_batch: Optional[int] = None) -> Outcome:
        """Whether a model trains under the strategy, seen from where its variables live.

        Args:
            strategy: What ``build`` returned.
            config: What was asked.
            model: A built model.
            global_batch: Examples of one batch given to ``fit``, where known.
        """
        import tensorflow as tf

        wanted = self.replica_devices(config, self.inventory(tf))
        replicas = int(strategy.num_replicas_in_sync)
        observed: dict[str, Any] = {"kind": self.name, "strategy": type(strategy).__name__, "replicas": replicas}
        if not model.weights:
            return Outcome(
                Status.UNVERIFIABLE, "The model has no variables yet, so nothing shows where it trains.", observed
            )
        own = model.distribute_strategy
        found = devices_of(model.weights[0], own)
        observed["variable_devices"] = list(found)
        if own is not strategy and sorted(found) != sorted(wanted):
            return Outcome(
                Status.LATE,
                f"The model's variables are on {', '.join(found)} and not on {', '.join(wanted)}: it was made outside "
                "the strategy. Make and compile it inside `with strategy.scope():`.",
                observed,
            )
        if sorted(found) != sorted(wanted):
            return Outcome(
                Status.NO_EFFECT,
                f"The model's variables are on {', '.join(found)}, not on {', '.join(wanted)}.",
                observed,
            )
        if global_batch is not None:
            observed["global_batch"] = global_batch
            observed["per_replica_batch"] = [global_batch // replicas, -(-global_batch // replicas)]
        return Outcome(Status.APPLIED, f"{describe(wanted)} {describe_batch(replicas, global_batch)}", observed)


def describe(names: tuple[str, ...]) -> str:
    """One sentence on the replicas of a strategy."""
    if len(names) == 1:
        return f"One replica, on {names[0]}."
    return f"{len(names)} replicas, on {', '.join(names)}."


def describe_batch(replicas: int, global_batch: Optional[int] = None) -> str:
    """One sentence on how a batch given to ``fit`` is divided: it is the global batch under every strategy here.

    Args:
        replicas: Number of replicas.
        global_batch: Examples of one batch given to ``fit``, where known.
    """
    if replicas == 1:
        return "It gets the whole batch." if global_batch is None else f"It gets the whole batch of {global_batch}."
    if global_batch is None:
        return f"A batch given to fit is the global batch: each replica gets 1/{replicas} of it."
    share, rest = divmod(global_batch, replicas)
    if rest == 0:
        return f"The global batch of {global_batch} gives each replica {share} examples."
    return (
        f"The global batch of {global_batch} does not divide by {replicas}: replicas get up to {share + 1} examples; "
        f"{replicas * share or replicas} or {replicas * (share + 1)} would divide."
    )
