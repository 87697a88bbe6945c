"""Custom training loops under a strategy: a loss and a step with the gradients of one process on the whole batch.

Example:
    The same lines with one replica and with several, for a Keras loss or a plain function::

        def replica_step(data):
            return tfvolta.distributed_loop.train_step(model, optimizer, keras.losses.MeanSquaredError(), data)

        @tf.function
        def step(iterator):
            return strategy.run(replica_step, args=(next(iterator),))

        print(tfvolta.distributed_loop.report(strategy, step(iterator)))

    ``replica_loss`` alone serves a step of one's own.

Under Horovod each rank is one replica of its own process, and Horovod averages the gradients; the same code is right
there as long as all ranks have batches of one size.

Importing this module imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from tfvolta import precision
from tfvolta.errors import BridgeError, ConfigError, Problem
from tfvolta.strategy.kind import describe_batch

if TYPE_CHECKING:
    from tfvolta.bridge.replica_loss import ReplicaLoss
    from tfvolta.session import Session

_RUN = "call it inside the function that is given to strategy.run"


def replica_loss(
    loss: Any, y_true: Any, y_pred: Any, sample_weight: Optional[Any] = None, global_batch: Optional[int] = None
) -> ReplicaLoss:
    """The loss of this replica's share, weighed so that the replicas' losses and gradients add up to the batch's.

    Args:
        loss: A Keras loss object with any reduction, or a function of ``(y_true, y_pred)`` that returns the value of
            each example, or, as a scalar, their mean.
        y_true: Targets of this replica's share.
        y_pred: Predictions for it; the first axis counts examples.
        sample_weight: A weight for each example or element.
        global_batch: Examples of all replicas together where that is known, which saves an exchange in each step.

    Returns:
        ``loss`` to be differentiated, and the sizes of this share and of the whole batch.

    Raises:
        BridgeError: Called outside of ``strategy.run`` under a strategy of several replicas.
        ConfigError: An argument cannot be used.
    """
    from tfvolta.bridge import replica_loss as bridge

    if not callable(loss):
        raise _not_a_loss(loss)
    if global_batch is not None and (not isinstance(global_batch, int) or global_batch < 1):
        raise ConfigError("This cannot be used.", [Problem("global_batch", "a positive integer", repr(global_batch))])
    if bridge.in_cross_replica_context():
        raise _outside()
    return bridge.replica_loss(loss, y_true, y_pred, sample_weight, global_batch)


def train_step(model: Any, optimizer: Any, loss: Any, data: Any, global_batch: Optional[int] = None) -> ReplicaLoss:
    """One step of this replica: forward, loss with what the layers add to it, gradients, update.

    Loss scaling works as in ``tfvolta.precision``: give an optimizer of ``loss_scale_optimizer``.

    Args:
        model: A built Keras model, made in the strategy's scope.
        optimizer: Of the same Keras, built in the scope as well.
        loss: See ``replica_loss``.
        data: ``(x, y)`` or ``(x, y, sample_weight)``: this replica's share of a batch.
        global_batch: See ``replica_loss``.

    Returns:
        What ``replica_loss`` returns, with the layers' own losses in ``loss``.
    """
    from tfvolta.bridge import replica_loss as bridge

    x, y, *weights = data
    with bridge.tape() as tape:
        found = replica_loss(loss, y, model(x, training=True), weights[0] if weights else None, global_batch)
        # What the layers add is the same in each replica, and the replicas are added up.
        value = found.loss + sum(model.losses) / bridge.replicas() if model.losses else found.loss
        scaled = precision.scale_loss(optimizer, value)
    variables = model.trainable_variables
    gradients = precision.unscale_gradients(optimizer, bridge.gradients(tape, scaled, variables))
    precision.apply_gradients(optimizer, zip(gradients, variables))
    return found._replace(loss=value)


def report(strategy: Any, result: Any, session: Optional[Session] = None) -> dict[str, Any]:
    """What a step came to over the replicas of this process, in numbers; waits for the step.

    Args:
        strategy: The strategy whose ``run`` returned the result.
        result: What it returned for a function that returns ``replica_loss`` or ``train_step``.
        session: Takes the batch sizes into the evidence of a run.

    Returns:
        ``loss`` of the batch, ``replicas``, ``replica_batches`` with the examples of each, ``global_batch``, and
        ``batches``, the same as a sentence. With several workers the loss is that of this worker's replicas.
    """
    from tfvolta.bridge.replica_loss import of_replicas

    losses, shares, wholes = (of_replicas(strategy, part) for part in result)
    replicas = int(strategy.num_replicas_in_sync)
    found: dict[str, Any] = {
        "loss": sum(losses),
        "replicas": replicas,
        "replica_batches": shares,
        "global_batch": wholes[0],
        "batches": describe_batch(replicas, wholes[0]),
    }
    if session is not None:
        session.measured("batches", _sizes(found))
    return found


def _sizes(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("replicas", "replica_batches", "global_batch")}


def _not_a_loss(loss: Any) -> ConfigError:
    problem = Problem(
        where="loss",
        expected="a loss object of keras.losses, or a function of (y_true, y_pred)",
        received=repr(loss),
        fix="loss = keras.losses.MeanSquaredError()",
    )
    return ConfigError("This is not a loss.", [problem])


def _outside() -> BridgeError:
    problem = Problem(
        where="replica_loss",
        expected="one replica's share of a batch",
        received="a call outside of strategy.run, under a strategy of several replicas",
        why="there the shares of all replicas are one object, and no replica's size is known",
        fix=_RUN,
    )
    return BridgeError("The loss of a replica is computed in the replica.", [problem])
