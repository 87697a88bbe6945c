"""What trials have to share so that one may stand for the other."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Mapping, Sequence

from tfvolta.config.dumping import config_to_dict
from tfvolta.config.schema import Config
from tfvolta.facts.schema import Facts
from tfvolta.tune.result import Machine

_VARIABLES = ("TF_", "XLA_", "CUDA_", "NVIDIA_", "NCCL_", "KERAS_", "OMP_", "MKL_", "PYTHONPATH")
_MOST_FILES = 200
# They say where evidence goes and what is printed, not what is trained.
_APART = ("directory",)


def sources(script: str) -> dict[str, str]:
    """Hashes of a script and of the Python files beside it, which it may import."""
    path = Path(script).absolute()
    beside = sorted(path.parent.glob("*.py"))[:_MOST_FILES]
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in dict.fromkeys([path, *beside])}


def machine_of(facts: Facts) -> Machine:
    """The machine, as a result names it."""
    return Machine(
        host=facts.host,
        stack=facts.stack,
        cpu=facts.cpu.model,
        cores=facts.cpu.usable_cores,
        memory_mb=facts.cpu.memory_mb,
        gpus=tuple(gpu.name for gpu in facts.gpus),
        driver=facts.driver,
    )


def versions_of(facts: Facts) -> dict[str, str]:
    """Versions on which speed depends."""
    import tfvolta

    return {"tfvolta": tfvolta.__version__, "python": facts.python, **facts.packages, **facts.libraries}


def fingerprint(
    script: str,
    arguments: Sequence[str],
    config: Config,
    facts: Facts,
    how: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
) -> str:
    """A hash of script, config, flags, machine, versions and environment, and of how trials are timed.

    Data that the script reads are not part of it.

    Args:
        script: The training script.
        arguments: Its own.
        config: The user's, before anything is searched.
        facts: Machine and stack.
        how: Blocks, their length, and which fit.
        environ: The environment of trials.
    """
    asked = config_to_dict(config)
    run = {key: value for key, value in asked.get("run", {}).items() if key not in _APART}
    machine = machine_of(facts).model_dump(mode="json")
    content = {
        "sources": sources(script),
        "script": os.path.basename(script),
        "arguments": list(arguments),
        "config": {**asked, "run": run},
        "machine": machine,
        "versions": versions_of(facts),
        "environ": {name: value for name, value in sorted(environ.items()) if name.startswith(_VARIABLES)},
        "how": dict(how),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
