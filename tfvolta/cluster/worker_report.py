"""What each worker tells of itself when the workers meet, and the summary of it that evidence keeps."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from typing import Any, Iterator, Mapping, Optional

import tfvolta
from tfvolta.cluster.cluster import Cluster
from tfvolta.facts.visibility import visible_gpus

# Keys that may differ from worker to worker without making the training another one.
OWN_KEYS = ("run.directory",)
_GPU = re.compile(r"gpu:(\d+)$", re.IGNORECASE)
_KERAS = {"keras3": "keras", "tf_keras": "tf_keras", "keras2": "keras"}


def make_report(cluster: Cluster, facts: Any, config: Any, environ: Mapping[str, str]) -> dict[str, Any]:
    """This worker's report: JSON values only.

    Args:
        cluster: Who trains together.
        facts: ``tfvolta.facts.schema.Facts`` of this machine and stack.
        config: The whole config.
        environ: The process environment.
    """
    values = dict(_leaves(config.model_dump(mode="json")))
    script = sys.argv[0] if sys.argv else ""
    return {
        "rank": cluster.rank,
        "name": cluster.name,
        "address": cluster.address or "",
        "host": facts.host or platform.node(),
        "pid": os.getpid(),
        "kind": str(config.get("strategy.kind") or "default"),
        "versions": _versions(facts),
        "gpus": _gpus(facts, config, environ),
        "config": values,
        "config_digest": digest(values),
        "commit": commit_of(script),
    }


def digest(values: Mapping[str, Any]) -> str:
    """A short mark that is equal for equal values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """What evidence keeps of a report: all but the config, of which the digest stands."""
    return {name: value for name, value in report.items() if name not in ("config", "kind")}


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted key; what is each worker's own is left out."""
    for name, value in values.items():
        key = prefix + name
        if key in OWN_KEYS:
            continue
        if isinstance(value, dict):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _versions(facts: Any) -> dict[str, str]:
    keras = _KERAS[facts.stack]
    found = {
        "python": ".".join(re.findall(r"\d+", facts.python or platform.python_version())[:2]),
        "tfvolta": tfvolta.__version__,
        "stack": facts.stack,
        "tensorflow": facts.tensorflow.version if facts.tensorflow is not None else "",
        keras: facts.packages.get(keras, ""),
        "horovod": facts.packages.get("horovod", ""),
    }
    return {name: version for name, version in found.items() if version}


def _gpus(facts: Any, config: Any, environ: Mapping[str, str]) -> list[str]:
    """Models of the GPUs that this process will use, in its order."""
    build = facts.tensorflow
    if build is not None and not build.compute_capabilities and build.cuda_version is None:
        return []  # a TensorFlow without CUDA sees none of them
    names = {gpu.index: gpu.name for gpu in facts.gpus}
    shown = [names[index] for index in visible_gpus(facts.gpus, environ.get("CUDA_VISIBLE_DEVICES"))]
    chosen = config.get("devices.visible")
    if isinstance(chosen, list):
        shown = [shown[index] for index in chosen if index < len(shown)]
    devices = config.get("strategy.devices")
    if not isinstance(devices, list):
        return shown
    numbers = [int(match[1]) for match in map(_GPU.search, devices) if match is not None]
    return [shown[number] for number in numbers if number < len(shown)]


def commit_of(script: str) -> Optional[str]:
    """The git commit of a script's folder, with a plus where files were changed since; None outside of git."""
    folder = os.path.dirname(os.path.abspath(script)) if script else os.getcwd()
    head = _git(folder, "rev-parse", "HEAD")
    if head is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return head[:12] + ("+" if changed else "")


def _git(folder: str, *arguments: str) -> Optional[str]:
    try:
        # A folder of another user is no reason to fail, nor one on a slow disk to wait.
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
