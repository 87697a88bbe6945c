"""What the estimates share that run a script up to its first training step: arguments, and the process that does it."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from tfvolta.cli.argument_reader import ArgumentReader
from tfvolta.cli.config_arguments import add_config_arguments
from tfvolta.errors import EstimateError, Problem

_POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
_DEFAULT_SECONDS = "600"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say what is trained."""
    add_config_arguments(parser)
    group = parser.add_argument_group("what if")
    group.add_argument("--batch", metavar="N", help="examples of one GPU's batch, instead of those of the script")
    group.add_argument("--precision", metavar="POLICY", help="float32, mixed_float16 or mixed_bfloat16")
    parser.add_argument(
        "--time-limit", metavar="SECONDS", default=_DEFAULT_SECONDS, help="end the script after this (default: 600)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def read_request(arguments: argparse.Namespace, reader: ArgumentReader, **more: Any) -> dict[str, Any]:
    """The request of ``tfvolta.script.footprint``; what is wrong with it is told by ``reader.done``."""
    from tfvolta.script.footprint import Request, is_model

    batch = reader.number("--batch", arguments.batch, whole=True)
    reader.number("--time-limit", arguments.time_limit)
    overrides = list(arguments.set)
    if arguments.precision is not None:
        policy = reader.choice("--precision", arguments.precision, _POLICIES)
        overrides.append(f"mixed_precision.policy={policy}")
    if not os.path.exists(arguments.script):
        reader.problem("SCRIPT", "a file", f"{arguments.script}, which is not there", fix="check the path")
    elif is_model(arguments.script) and more.get("memory"):
        why = "a saved model does not say which optimiser and loss train it, nor on what"
        reader.problem("SCRIPT", "a training script", arguments.script, why, "give the script that trains it")
    reader.done()
    request = Request(
        script=arguments.script,
        arguments=tuple(arguments.arguments),
        config=arguments.config,
        overrides=tuple(overrides),
        directory=arguments.directory,
        batch=None if batch is None else int(batch),
        **more,
    )
    return dataclasses.asdict(request)


def look(request: dict[str, Any], seconds: float, on_gpu: bool = False) -> dict[str, Any]:
    """What the script trains, from a process of its own. What the script prints goes to standard error.

    Args:
        request: From ``read_request``.
        seconds: How long it may take.
        on_gpu: Whether it may use a GPU; else it does not see any.

    Raises:
        EstimateError: The script failed, took too long or never trained.
    """
    with tempfile.TemporaryDirectory(prefix="tfvolta-estimate-") as folder:
        asked, answer = pathlib.Path(folder, "request.json"), pathlib.Path(folder, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-m", "tfvolta.script.footprint", str(asked), str(answer)]
        try:
            code = subprocess.run(
                command, stdout=sys.stderr, env=_environment(on_gpu), timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            raise _failed(request["script"], f"still at work after {seconds:g} s", "--time-limit 1800") from None
        found = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else None
    if found is None and not _has_tensorflow():
        fix = "run it with the Python that the script trains with, or pip install 'tfvolta[keras3]'"
        raise _failed(request["script"], f"no TensorFlow in {sys.executable}", fix)
    if found is None:
        raise _failed(request["script"], f"exit code {code}", "its own error is above; run it by itself first")
    if "error" in found:
        failure = found["error"]
        raise EstimateError(failure["summary"], [Problem(**problem) for problem in failure["problems"]])
    return dict(found)


def _has_tensorflow() -> bool:
    try:
        return importlib.util.find_spec("tensorflow") is not None
    except ImportError:
        return False


def _environment(on_gpu: bool) -> dict[str, str]:
    """The environment of the process; the estimate needs no GPU and must not take memory of one that is in use."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    root = str(pathlib.Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH", ""))))
    if not on_gpu:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return environment


def _failed(script: str, received: str, fix: str) -> EstimateError:
    problem = Problem(script, "a script that reaches model.fit", received, fix=fix)
    return EstimateError("The script could not be looked at.", [problem])


def seconds_of(arguments: argparse.Namespace) -> float:
    """The time limit, once ``read_request`` has found it usable."""
    return float(arguments.time_limit)
