"""Custom loops that cannot work, each with the reason and the way out; the same on every Keras."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfvolta.errors import BridgeError, Problem


def replicas() -> int:
    """Number of replicas of which the present code is one."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else int(context.num_replicas_in_sync)


def refuse_cross_replica(optimizer: Any) -> None:
    """Refuses a step that is not taken inside a replica.

    Raises:
        BridgeError: The call comes from inside ``strategy.scope()`` and outside ``strategy.run``.
    """
    if tf.distribute.in_cross_replica_context():
        raise refusal(
            optimizer,
            "apply_gradients to be called by every replica",
            "a call outside strategy.run",
            "the replicas have to agree whether their gradients are finite before any of them takes the step",
            "call it from the function that is given to strategy.run(step, args=(batch,))",
        )


def refuse_empty(optimizer: Any, pairs: list[Any]) -> None:
    """Refuses a step without gradients.

    Raises:
        BridgeError: There is no pair, or every gradient is None.
    """
    if all(gradient is None for gradient, _ in pairs):
        raise refusal(
            optimizer,
            "at least one gradient",
            f"{len(pairs)} pairs, all without a gradient" if pairs else "no pairs",
            "the loss does not depend on these variables, or the tape did not see how",
            "compute the loss inside tf.GradientTape, from the variables that are trained",
        )


def refusal(optimizer: Any, expected: str, received: str, why: str, fix: str) -> BridgeError:
    """The error for a custom loop."""
    name: Optional[str] = getattr(optimizer, "name", None)
    problem = Problem(f"{type(optimizer).__name__} {name or ''}".strip(), expected, received, why, fix)
    return BridgeError("This custom training loop cannot work.", [problem])
