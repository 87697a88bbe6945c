"""Kind ``mirrored``: one replica on each device of one process, gradients all-reduced every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.outcome import Status
from tfvolta.strategy import communication, devices, history
from tfvolta.strategy.devices import Inventory, planned, where
from tfvolta.strategy.kind import Kind, describe, describe_batch
from tfvolta.strategy.reducer import make_reducer

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


class Mirrored(Kind):
    """``tf.distribute.MirroredStrategy``.

    With a single device there is nothing to mirror, and TensorFlow's default strategy serves: Keras 3 would switch
    XLA off under a MirroredStrategy of one replica too.
    """

    name = "mirrored"
    description = "one replica on each GPU (or logical CPU) of this process, gradients all-reduced every step"
    keys = (
        "strategy.kind",
        "strategy.devices",
        "communication.implementation",
        "communication.num_packs",
        "communication.pack_mb",
    )

    def check(self, config: Config, inventory: Inventory) -> list[Problem]:
        """Devices that exist, and an all-reduce that works on them."""
        names = self.replica_devices(config, inventory)
        return devices.problems(config, inventory) + communication.mirrored_problems(config, names, inventory)

    def replica_devices(self, config: Config, inventory: Inventory) -> tuple[str, ...]:
        """The named devices; ``all`` is every GPU, or the logical CPUs where there is none."""
        return devices.resolve(config.get("strategy.devices"), inventory)

    def forecast(self, config: Config, facts: Facts) -> Forecast:
        """How many replicas, and what a single one means."""
        inventory = planned(config, facts)
        names = self.replica_devices(config, inventory)
        message = f"{describe(names)} {describe_batch(len(names))}"
        if len(names) == 1:
            reason = inventory.note or ("only one GPU is visible" if inventory.gpus else "there is no GPU")
            message = f"{describe(names)} Nothing is mirrored ({reason}); the model trains as without a strategy."
            if not inventory.gpus:
                message += " strategy.logical_cpus: 2 tries the strategy without GPUs."
        elif {name[:3] for name in names} == {"CPU", "GPU"}:
            message += " GPU and CPU mixed: every step waits for the CPU, and the default reduces on one device."
        return Forecast(Status.APPLIED, message)

    def build(self, config: Config, context: Context) -> Any:
        """The strategy with its recording all-reduce; the same object for the same configuration.

        Raises:
            PlanError: This process already reduces with collectives over other devices.
        """
        from tfvolta.bridge import all_reduce
        from tfvolta.bridge.worker_service import serve_workers

        tf = context.tensorflow
        inventory = devices.live(tf)
        names = self.replica_devices(config, inventory)
        if names == (inventory.default_device,):
            return tf.distribute.get_strategy()
        packs, size = config.get("communication.num_packs"), config.get("communication.pack_mb")
        build = history.Build(names, communication.implementation(config), packs, size)
        known = history.recall(build)
        if known is not None:
            return known
        history.check(build, where(config, "strategy.kind"))
        reducer = make_reducer(tf, build.implementation, build.num_packs)
        strategy = tf.distribute.MirroredStrategy([f"/device:{name}" for name in names], cross_device_ops=reducer)
        all_reduce.install(strategy, communication.pack_bytes(config))
        serve_workers(context.stack)
        history.remember(build, strategy, reducer)
        return strategy
