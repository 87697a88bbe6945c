"""A whole config's settings, carried into ``fit``."""

from __future__ import annotations

from tfvolta.callbacks.carrier import Carrier


class ApplyPlan(Carrier):
    """Applies the fit-time part of a session's plan to the model given to ``fit``, and verifies it once traced.

    Example:
        ``model.fit(dataset, callbacks=tfvolta.build_callbacks(config))`` puts it first in the list.

    Args:
        session: An open session of the config.
    """
