"""Kind ``default``: no distribution; TensorFlow places everything itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.outcome import Outcome, Status
from tfvolta.strategy import communication
from tfvolta.strategy.devices import Inventory, planned, where
from tfvolta.strategy.kind import Kind

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


class Default(Kind):
    """The strategy that TensorFlow has when none is asked for; inside a user's own scope, the user's."""

    name = "default"
    description = "no distribution: one replica, on the first GPU or the CPU"
    keys = ("strategy.kind",)

    def check(self, config: Config, inventory: Inventory) -> list[Problem]:
        """A list of devices and a communication section have no place here."""
        found = communication.missing_keys(config, self.name)
        asked = config.get("strategy.devices")
        if isinstance(asked, list):
            kind = "one_device" if len(asked) == 1 else "mirrored"
            found.append(
                Problem(
                    where=where(config, "strategy.devices"),
                    expected="devices: all with strategy.kind: default",
                    received=f"devices: [{', '.join(asked)}]",
                    why="the default strategy leaves placing to TensorFlow",
                    fix=f"set strategy.kind: {kind}, or remove devices",
                )
            )
        return found

    def replica_devices(self, config: Config, inventory: Inventory) -> tuple[str, ...]:
        """The first GPU, or the CPU."""
        return (inventory.default_device,)

    def forecast(self, config: Config, facts: Facts) -> Forecast:
        """One replica; with a word on GPUs that will be idle."""
        inventory = planned(config, facts)
        message = f"One replica, on {inventory.default_device}."
        if inventory.gpus > 1:
            message += f" {inventory.gpus - 1} of {inventory.gpus} GPUs stay idle; strategy.kind: mirrored uses all."
        return Forecast(Status.APPLIED, message)

    def build(self, config: Config, context: Context) -> Any:
        """TensorFlow's current strategy."""
        return context.tensorflow.distribute.get_strategy()

    def verify(self, strategy: Any, config: Config, model: Any, global_batch: Optional[int] = None) -> Outcome:
        """Placement is TensorFlow's; a strategy that the script chose for itself is named."""
        own = model.distribute_strategy
        if own.num_replicas_in_sync == 1:
            return super().verify(own, config, model, global_batch)
        name = type(own).__name__
        return Outcome(
            Status.NO_EFFECT,
            f"The script trains under a {name} of its own with {own.num_replicas_in_sync} replicas; "
            "strategy.kind: default leaves that alone.",
            {"kind": self.name, "strategy": name, "replicas": int(own.num_replicas_in_sync)},
        )
