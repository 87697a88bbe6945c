"""Compiled steps kept on disk, so that the next run loads them."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Mapping

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment

VARIABLE = "TF_XLA_FLAGS"
_FLAG = "tf_xla_persistent_cache_directory"
_TYPES = "tf_xla_persistent_cache_device_types"
_AUTOTUNE = "xla_gpu_per_fusion_autotune_cache_dir"
_NO_CPU = (
    "TensorFlow 2.15 cannot write a step that was compiled for a CPU: the first one ends training with 'INTERNAL: "
    'TargetRegistry::lookupTarget failed: No available targets are compatible with triple "unknown"\''
)


def stored(folder: str) -> frozenset[str]:
    """Names of the compiled steps in a folder."""
    try:
        return frozenset(name for name in os.listdir(folder) if name.startswith("xla_compile_cache__"))
    except OSError:
        return frozenset()


def cache_folder(directory: str, facts: Any, environ: Mapping[str, str]) -> str:
    """The folder below the config's for this TensorFlow, these devices and these flags of XLA.

    TensorFlow finds an entry by the step's operations and shapes alone, and would load what another release, another
    device or other flags made of them.
    """
    from tfvolta.knobs.xla_flags import parse_flags

    flags = {name: text for name, text in parse_flags(environ.get("XLA_FLAGS", "")).items() if name != _AUTOTUNE}
    version = facts.tensorflow.version if facts.tensorflow else "unknown"
    devices = sorted({gpu.name for gpu in facts.gpus}) or [facts.cpu.model or "cpu"]
    made = hashlib.sha256(repr(sorted(flags.items())).encode()).hexdigest()[:8] if flags else "no-flags"
    name = "-".join(["tensorflow", version, *devices, made])
    return os.path.join(os.path.abspath(os.path.expanduser(directory)), re.sub(r"[^A-Za-z0-9.]+", "-", name).lower())


class XlaCache(EnvironmentKnob):
    """Keeps what XLA compiled on disk, and in a later run of the same script loads it instead of compiling it again.

    Binds: when TensorFlow starts its context.
    """

    name = "xla_cache"
    keys = ("xla.cache_directory",)
    closes_at = Moment.CONTEXT_INITIALIZED
    move_to = "build the strategy from the config (or call tfvolta.apply_environment) before TensorFlow makes a tensor"
    techniques = ("K5", "M9")
    needs_gpu = False
    condition = "XLA compiles something"

    def variables(self, value: Any) -> dict[str, str]:
        return {VARIABLE: f"--{_FLAG}={value}"}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        if facts.gpus or not _release(facts).startswith("2.15"):
            return []
        return [
            Problem(
                where="xla.cache_directory",
                expected="a GPU, or TensorFlow 2.21",
                received=f"TensorFlow {_release(facts)} on a machine without a GPU",
                why=_NO_CPU,
                fix="remove xla.cache_directory",
            )
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if config.get("xla.jit") == "off":
            return Forecast(Status.NO_EFFECT, "xla.jit: off compiles nothing that could be kept.", self.condition)
        return Forecast(Status.APPLIED, self.explain(value, facts, config), self.condition)

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del config
        folder = cache_folder(value, facts, {})
        tested = "" if not facts.gpus else " No GPU has been tried with it here; the files in the folder will show it."
        return f"Compiled steps are kept below {os.path.dirname(folder)} and loaded by later runs.{tested}"

    def apply(self, value: Any, context: Context) -> None:
        from tfvolta.knobs.xla_flags import merge_flags

        names = (VARIABLE, "XLA_FLAGS") if _autotunes(context.facts) else (VARIABLE,)
        context.saved.setdefault(self.name, {name: context.environ.get(name) for name in names})
        folder = cache_folder(value, context.facts, context.environ)
        context.saved.setdefault(f"{self.name}.before", stored(folder))
        for name, flags in _flags(folder, context.facts).items():
            context.environ[name] = merge_flags(context.environ.get(name), flags)[0]

    def verify(self, value: Any, context: Context) -> Outcome:
        from tfvolta.knobs.jit import step_is_compiled
        from tfvolta.knobs.xla_flags import parse_flags

        folder = parse_flags(context.environ.get(VARIABLE, "")).get(_FLAG)
        if folder != cache_folder(value, context.facts, context.environ):
            return Outcome(Status.NO_EFFECT, f"{VARIABLE} was changed after tfvolta set it.", {"folder": folder})
        before = context.saved.get(f"{self.name}.before", frozenset())
        now = stored(folder)
        observed = {"folder": folder, "before": len(before), "stored": len(now - before)}
        if now - before:
            return Outcome(Status.APPLIED, f"{len(now - before)} compiled steps were written to {folder}.", observed)
        if not step_is_compiled(context):
            return Outcome(Status.PENDING, "Set; nothing of the model has been compiled yet.", observed)
        if now:
            message = f"The step is compiled and nothing new was written: it was loaded, {len(now)} are in {folder}."
            return Outcome(Status.APPLIED, message, observed)
        return Outcome(Status.NO_EFFECT, f"The step is compiled and nothing was written to {folder}.", observed)

    def undo(self, context: Context) -> bool:
        context.saved.pop(f"{self.name}.before", None)
        return super().undo(context)


def _flags(folder: str, facts: Any) -> dict[str, list[str]]:
    """Flags by variable."""
    flags = {VARIABLE: [f"--{_FLAG}={folder}"]}
    if _release(facts).startswith("2.15"):
        flags[VARIABLE].append(f"--{_TYPES}=XLA_GPU_JIT")
    if _autotunes(facts):
        flags["XLA_FLAGS"] = [f"--{_AUTOTUNE}={os.path.join(folder, 'autotune')}"]
    return flags


def _autotunes(facts: Any) -> bool:
    """Whether XLA can keep the results of timing kernels, which is a good part of compiling for a GPU."""
    from tfvolta.knobs.xla_flags import known_flags

    return bool(facts.gpus) and _AUTOTUNE in (known_flags(_release(facts) or None) or {})


def _release(facts: Any) -> str:
    return str(facts.tensorflow.version) if facts.tensorflow else ""
