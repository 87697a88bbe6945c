"""How a setting is taken out of a config, in words for an error."""

from __future__ import annotations

from typing import Any, Mapping

from tfvolta.config.leaving_alone import left_alone
from tfvolta.config.scalars import write_flow


def removal(knob: Any, config: Any) -> str:
    """The fix of a setting that this machine, stack or model makes nothing of.

    Args:
        knob: The setting.
        config: The config that asks for it; the line named is one after which it does not.
    """
    on = "--no-strict (run.strict: false) to go on with it all the same"
    line = next((line for line, without in left_alone(config, knob.keys[0]) if knob.value(without) is None), None)
    return on if line is None else f"take it out: --set {line}; or {on}"


def in_words(value: Any) -> str:
    """A setting's value as a config has it, without the keys that nobody gave.

    Args:
        value: JSON values, as ``Step.to_json`` gives them.
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {write_flow(item)}" for key, item in value.items() if item not in (None, []))
    return write_flow(value)
