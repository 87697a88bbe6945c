"""The two calls by which a script takes a config: a strategy before the model, callbacks for its fit."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.phase import Phase
from tfvolta.session import session_for


def build_strategy(config: Any) -> Any:
    """Applies the environment, devices and build settings of a config and makes its distribution strategy.

    Call it before anything that starts TensorFlow's devices: before the first tensor, data set, layer or optimiser.
    With ``strategy.kind: parameter_server`` it does not return in a worker or a parameter server: the process serves
    the chief, and ends with exit code 0 when that has finished.

    Args:
        config: From ``load_config``.

    Returns:
        A ``tf.distribute.Strategy``; TensorFlow's default one where the config asks for none. Build and compile
        the model inside its ``scope()``.

    Raises:
        PlanError: The config cannot work on this machine or stack.
        LateError: A setting came too late and the config is strict.
        LostError: This process served the chief, which is gone.
        SystemExit: This process served the chief, which has finished.
    """
    from tfvolta.session.served import close_served
    from tfvolta.strategy.serving import Served

    session = session_for(config)
    try:
        session.enter(Phase.BUILD)
    except Served as served:
        close_served(session, served)
        raise
    if session.context.strategy is not None:
        return session.context.strategy
    return session.context.tensorflow.distribute.get_strategy()


def build_callbacks(config: Any, model: Optional[Any] = None) -> list[Any]:
    """The callbacks that carry a config's fit-time settings and its monitors; they come first in fit's list.

    Args:
        config: From ``load_config``.
        model: The compiled model. With it, settings that must be made between ``compile`` and ``fit``
            (steps_per_execution) are made now; without it they are reported LATE when fit starts.

    Returns:
        Objects for ``model.fit(callbacks=...)``; they serve the Keras that the model belongs to.

    Raises:
        PlanError: The config cannot work on this machine or stack.
        LateError: A setting came too late and the config is strict.
    """
    from tfvolta.callbacks.build import session_callbacks

    session = session_for(config)
    session.enter(Phase.DEVICES)
    if model is not None:
        session.attach(model, in_fit=False)
    return session_callbacks(session)
