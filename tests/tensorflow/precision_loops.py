"""Custom training loops under a mirrored strategy on two logical CPUs; prints what happened as one JSON document.

Run as ``python -m tests.tensorflow.precision_loops``: a process can split its CPU only once.
"""

from __future__ import annotations

import json
from typing import Any, Callable

from tests.stack import KERAS3, keras, tf
from tfvolta import precision
from tfvolta.audit import audit_model
from tfvolta.errors import TfvoltaError

CASES = ((float("inf"), 1.0), (1.0, float("inf")), (2.0, 4.0), (0.25, 0.25))


def raw(variable: Any) -> Any:
    return variable.value if KERAS3 else variable


def variable_and_optimizer(make: Callable[[], Any], build: bool = True, **arguments: Any) -> tuple[Any, Any]:
    variable = keras.Variable([0.0]) if KERAS3 else tf.Variable([0.0])
    optimizer = precision.loss_scale_optimizer(make(), initial=1024.0, **arguments)
    if build and hasattr(optimizer, "build"):
        optimizer.build([variable])
    return variable, optimizer


def step_of(strategy: Any, variable: Any, optimizer: Any, clip: bool = True) -> Any:
    """The documented step: the loss of a replica is divided by the size of the global batch."""

    def replica(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = precision.scale_loss(optimizer, tf.reduce_sum(raw(variable) * x) / 2)
        gradients = precision.unscale_gradients(optimizer, tape.gradient(loss, [raw(variable)]))
        norm = tf.constant(0.0)
        if clip:
            gradients, norm = precision.clip_by_global_norm(gradients, 1.0)
        precision.apply_gradients(optimizer, zip(gradients, [variable]))
        return norm

    return tf.function(lambda values: strategy.run(replica, args=(values,)))


def trained(strategy: Any, make: Callable[[], Any]) -> list[Any]:
    with strategy.scope():
        variable, optimizer = variable_and_optimizer(make)
    step = step_of(strategy, variable, optimizer)
    records = []
    for case in CASES:
        norms = step(of_replicas(strategy, case))
        counts = precision.step_counts(optimizer)
        records.append(
            {
                "norms": [float(norm) for norm in strategy.experimental_local_results(norms)],
                "weight": float(variable.numpy()[0]),
                "scale": precision.current_scale(optimizer),
                "counts": [counts.attempted, counts.applied, counts.skipped],
            }
        )
    return records


def of_replicas(strategy: Any, case: tuple[float, float]) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(case[context.replica_id_in_sync_group])
    )


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except TfvoltaError as error:
        return str(error)
    return ""


def refusals(strategy: Any) -> dict[str, str]:
    found = {}
    with strategy.scope():
        variable, optimizer = variable_and_optimizer(lambda: keras.optimizers.SGD(1.0))
        found["outside"] = refusal(lambda: precision.apply_gradients(optimizer, [(tf.constant([1.0]), variable)]))
        unbuilt = variable_and_optimizer(lambda: keras.optimizers.SGD(1.0), build=False)
        clipped = variable_and_optimizer(lambda: keras.optimizers.SGD(1.0), clipnorm=1.0)
    found["unbuilt"] = refusal(lambda: step_of(strategy, *unbuilt)(of_replicas(strategy, (2.0, 4.0))))
    found["clipped"] = refusal(lambda: step_of(strategy, *clipped, clip=False)(of_replicas(strategy, (2.0, 4.0))))
    found["clipped weight"] = str(float(clipped[0].numpy()[0]))
    return found


def audits(strategy: Any) -> dict[str, list[str]]:
    """Findings of a model on two replicas, before and after each is mended."""
    with strategy.scope():
        dense, norm = keras.layers.Dense(1), keras.layers.BatchNormalization(name="norm")
        model = keras.Sequential([keras.Input((4,)), norm, dense])
        model.compile(keras.optimizers.SGD(0.1, clipnorm=1.0), "mse")
    before = [f"{finding.rule} {','.join(finding.layers)}".strip() for finding in audit_model(model)]
    norm.synchronized = True
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return {"before": before, "after": [finding.rule for finding in audit_model(model)]}


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    makes: dict[str, Callable[[], Any]] = {"sgd": lambda: keras.optimizers.SGD(1.0)}
    if not KERAS3:
        makes["legacy"] = lambda: keras.optimizers.legacy.SGD(1.0)
    done = {name: trained(strategy, make) for name, make in makes.items()}
    print(json.dumps({"trained": done, "refusals": refusals(strategy), "audits": audits(strategy)}))


if __name__ == "__main__":
    main()
