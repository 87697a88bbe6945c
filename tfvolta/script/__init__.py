"""Running an unmodified training script under a plan."""

from __future__ import annotations

from tfvolta.script.run import ScriptRun
from tfvolta.script.source import check_script, layers_named_in

__all__ = ["ScriptRun", "check_script", "layers_named_in"]
