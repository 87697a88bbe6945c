"""Mixed precision for a model that is already built and compiled."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.single import session_of

_DEFAULTS: dict[str, Any] = {
    "initial": 32768.0,
    "growth_steps": 2000,
    "fixed": None,
    "floor": None,
    "ceiling": None,
    "hysteresis": 1,
}


class MixedPrecision(Carrier):
    """Makes a built and compiled model compute in float16 or bfloat16 from its next train step on.

    Variables stay float32. With float16 the optimiser is wrapped in a loss scale, which a saved model remembers.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.MixedPrecision("mixed_float16")])``

    Args:
        policy: ``mixed_float16``, ``mixed_bfloat16`` or ``float32``.
        float32_layers: Layer classes or names (shell patterns) that keep computing in float32.
        initial_scale: First dynamic loss scale.
        growth_steps: Finite steps in a row before the dynamic loss scale doubles.
        fixed_scale: A constant loss scale instead of a dynamic one.
        strict: Whether a setting that comes too late or changes nothing is an error instead of a warning.
        allow_bfloat16_emulation: Accept bfloat16 on a GPU that computes it in float32, as Volta does.
        scale_range: Further settings of a dynamic loss scale by name: ``floor``, ``ceiling`` and ``hysteresis``.

    Raises:
        ConfigError: An argument is not accepted.
        PlanError: It cannot work here, such as bfloat16 on a GPU without it, or a fixed scale that is to grow.
    """

    def __init__(
        self,
        policy: str = "mixed_float16",
        float32_layers: Sequence[str] = (),
        initial_scale: float = 32768.0,
        growth_steps: int = 2000,
        fixed_scale: Optional[float] = None,
        strict: bool = True,
        allow_bfloat16_emulation: bool = False,
        **scale_range: Any,
    ):
        # Defaults are left unsaid: a fixed scale excludes the others, and bfloat16 has no loss scale at all.
        given = {**scale_range, "initial": initial_scale, "growth_steps": growth_steps, "fixed": fixed_scale}
        loss_scale = {key: value for key, value in given.items() if key not in _DEFAULTS or value != _DEFAULTS[key]}
        section: dict[str, Any] = {
            "policy": policy,
            "float32_layers": [float32_layers] if isinstance(float32_layers, str) else list(float32_layers),
        }
        if allow_bfloat16_emulation:
            section["allow_bfloat16_emulation"] = True
        if loss_scale:
            section["loss_scale"] = loss_scale
        super().__init__(session_of(strict, mixed_precision=section))
