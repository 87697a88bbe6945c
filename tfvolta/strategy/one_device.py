"""Kind ``one_device``: everything on one named device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.outcome import Status
from tfvolta.strategy import communication, devices
from tfvolta.strategy.devices import Inventory, planned, where
from tfvolta.strategy.kind import Kind, describe

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


class OneDevice(Kind):
    """``tf.distribute.OneDeviceStrategy``: variables, computation and input on one device."""

    name = "one_device"
    description = "one replica on a device that you name"
    keys = ("strategy.kind", "strategy.devices")

    def check(self, config: Config, inventory: Inventory) -> list[Problem]:
        """The device must exist, and be one."""
        found = communication.missing_keys(config, self.name) + devices.problems(config, inventory)
        asked = config.get("strategy.devices")
        if isinstance(asked, list) and len(asked) > 1:
            found.append(
                Problem(
                    where=where(config, "strategy.devices"),
                    expected="one device with strategy.kind: one_device",
                    received=f"[{', '.join(asked)}]",
                    fix=f"set devices: [{asked[0]}], or strategy.kind: mirrored",
                )
            )
        return found

    def replica_devices(self, config: Config, inventory: Inventory) -> tuple[str, ...]:
        """The named device; ``all`` is the first GPU, or the CPU."""
        return devices.resolve(config.get("strategy.devices"), inventory)[:1]

    def forecast(self, config: Config, facts: Facts) -> Forecast:
        """One replica; on Keras 3 with a GPU, the cost of having a strategy at all."""
        names = self.replica_devices(config, planned(config, facts))
        message = describe(names)
        if facts.keras == "keras3" and names[0].startswith("GPU"):
            message += (
                " Keras 3's jit_compile='auto' is off under every strategy, this one too; "
                "set xla.jit: model, or hide the other GPUs with devices.visible and use strategy.kind: default."
            )
        return Forecast(Status.APPLIED, message)

    def build(self, config: Config, context: Context) -> Any:
        """The strategy on the named device."""
        tf = context.tensorflow
        (name,) = self.replica_devices(config, devices.live(tf))
        return tf.distribute.OneDeviceStrategy(f"/device:{name}")
