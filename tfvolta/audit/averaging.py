"""An average of the weights together with gradient accumulation."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.audit.finding import Finding


def averaged_accumulation(optimizer: Any) -> Optional[Finding]:
    """Refuses ``use_ema`` with ``gradient_accumulation_steps``, on the optimizer itself or inside a wrapper.

    In a fit with tfvolta's callbacks the accumulation is carried out by the bridge, which averages once an update; a
    loop of one's own has nobody who does.

    Source: ``_backend_apply_gradients`` in keras/src/optimizers/base_optimizer.py of Keras 3.
    """
    from tfvolta.bridge import bridge_for

    if optimizer is None:
        return None
    bridge = bridge_for(optimizer)
    steps = bridge.accumulation_steps(optimizer)
    if steps < 2 or not bridge.keeps_ema(optimizer):
        return None
    inner = bridge.inner_optimizer(optimizer)
    return Finding(
        rule="averaged_accumulation",
        what=f"{type(inner).__name__} has use_ema=True and gradient_accumulation_steps={steps}",
        layers=(),
        why=f"Keras updates the average at each of {steps} micro-batches and not at each update, so it forgets {steps}"
        " times faster than ema_momentum says",
        fix="leave out gradient_accumulation_steps and use a larger batch, or leave out use_ema and average the weights"
        " in a callback; in fit, tfvolta's callbacks make both work together",
        refuses=True,
    )
