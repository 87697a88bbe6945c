"""Where the user's environment says something else than the config: reported, never overwritten in silence."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, MutableMapping, Sequence

from tfvolta.cluster import resolve
from tfvolta.cluster.finding import SEVERAL
from tfvolta.cluster.tf_config import VARIABLE
from tfvolta.conflicts import Request
from tfvolta.errors import ClusterError, Problem
from tfvolta.knobs.base import Knob

# Holds what tfvolta itself set, so that a later plan in this process or in a child does not take it for the user's.
JOURNAL = "TFVOLTA_ENVIRONMENT"

# Calls of scripts that enter a strategy or start Horovod.
_SPREADING = ("scope", "init", "experimental_set_strategy", "set_distribution")


def journal(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that tfvolta set in this environment, with the values it gave them."""
    try:
        recorded = json.loads(environ.get(JOURNAL, "{}"))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in recorded.items()} if isinstance(recorded, dict) else {}


def note(environ: MutableMapping[str, str], name: str, value: str | None) -> None:
    """Remembers that tfvolta set a variable, or forgets one (None) that it took back."""
    recorded = journal(environ)
    if value is None:
        recorded.pop(name, None)
    else:
        recorded[name] = value
    environ[JOURNAL] = json.dumps(recorded, sort_keys=True)


def user_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what tfvolta set and nobody changed since."""
    own = journal(environ)
    return {name: value for name, value in environ.items() if name != JOURNAL and own.get(name) != value}


def _truth(text: str) -> bool | None:
    lowered = text.strip().lower()
    return True if lowered in ("1", "true") else False if lowered in ("0", "false") else None


# Variables that decide the same thing as a key that is applied through an API: key, variable, the value that agrees.
def _api_twins(request: Request) -> Iterator[tuple[str, str, str]]:
    growth = request.get("devices.memory_growth")
    if growth is not None:
        yield "devices.memory_growth", "TF_FORCE_GPU_ALLOW_GROWTH", str(growth).lower()
    for key, variable in (
        ("devices.inter_op_threads", "TF_NUM_INTEROP_THREADS"),
        ("devices.intra_op_threads", "TF_NUM_INTRAOP_THREADS"),
    ):
        if request.get(key) is not None:
            yield key, variable, str(request.get(key))
    if request.get("math.tf32") is not None:
        yield "math.tf32", "NVIDIA_TF32_OVERRIDE", "1" if request.get("math.tf32") else "0"
    if request.get("debug.deterministic") is not None:
        yield "debug.deterministic", "TF_DETERMINISTIC_OPS", "1" if request.get("debug.deterministic") else "0"


def _differs(expected: str, received: str) -> bool:
    if _truth(expected) is not None and _truth(received) is not None:
        return _truth(expected) != _truth(received)
    return expected != received


def _problem(request: Request, key: str, variable: str, expected: str, received: str) -> Problem:
    return Problem(
        where=f"environment: {variable}",
        expected=f"{variable}={expected}, or unset, for {key} ({request.where(key).rsplit(':', 1)[0]})",
        received=f"{variable}={received}",
        why="the environment and the config disagree, and only one of them can bind",
        fix=f"unset {variable}, or make {key} agree with it",
    )


def find_contradictions(request: Request, steps: Sequence[tuple[Knob, Any]]) -> list[Problem]:
    """Every variable of the user's that contradicts the config.

    Args:
        request: Config, facts and the environment that the process starts with.
        steps: The knobs that the config asks for, with their values.
    """
    user = user_environment(request.environ)
    found = []
    for knob, value in steps:
        for variable, expected in knob.variables(value).items():
            received = user.get(variable)
            if received is None or variable in ("XLA_FLAGS", "TF_XLA_FLAGS"):
                continue
            if _differs(expected, received):
                found.append(_problem(request, knob.keys[0], variable, expected, received))
    for key, variable, expected in _api_twins(request):
        received = user.get(variable)
        if received is not None and _differs(expected, received):
            found.append(_problem(request, key, variable, expected, received))
    found += [*_flag_contradictions(request, user), *_visible_contradictions(request, user)]
    return [*found, *_backend_contradictions(request, user), *_cluster_contradictions(request, user)]


def _flag_contradictions(request: Request, user: Mapping[str, str]) -> Iterator[Problem]:
    flags = request.get("xla.flags")
    if flags and "XLA_FLAGS" in user:
        from tfvolta.knobs.xla_flags import merge_flags

        _, conflicts = merge_flags(user["XLA_FLAGS"], flags)
        for conflict in conflicts:
            yield _problem(request, "xla.flags", "XLA_FLAGS", " ".join(flags), str(conflict))
    directory, folder = request.get("xla.cache_directory"), "--tf_xla_persistent_cache_directory="
    if directory and folder in user.get("TF_XLA_FLAGS", ""):
        yield _problem(request, "xla.cache_directory", "TF_XLA_FLAGS", f"without {folder}", user["TF_XLA_FLAGS"])
    auto_jit = (
        "--tf_xla_auto_jit=" in user.get("TF_XLA_FLAGS", "") and "--tf_xla_auto_jit=0" not in user["TF_XLA_FLAGS"]
    )
    if auto_jit and request.get("xla.jit") in ("off", "model"):
        yield _problem(request, "xla.jit", "TF_XLA_FLAGS", "without --tf_xla_auto_jit", user["TF_XLA_FLAGS"])


def _backend_contradictions(request: Request, user: Mapping[str, str]) -> Iterator[Problem]:
    backend = user.get("KERAS_BACKEND", "")
    if request.facts.keras == "keras3" and backend not in ("", "tensorflow"):
        yield Problem(
            where="environment: KERAS_BACKEND",
            expected="KERAS_BACKEND=tensorflow, or unset",
            received=f"KERAS_BACKEND={backend}",
            why="these settings are TensorFlow's; Keras on another backend does not look at them",
            fix="unset KERAS_BACKEND",
        )


def _cluster_contradictions(request: Request, user: Mapping[str, str]) -> Iterator[Problem]:
    """TF_CONFIG that cannot be used, or of several workers with a training in one process: each would train alone."""
    kind = request.get("strategy.kind")
    if VARIABLE not in user or kind in SEVERAL:
        return
    try:
        cluster = resolve({VARIABLE: user[VARIABLE]})
    except ClusterError as error:
        yield from error.problems
        return
    if cluster is None or cluster.num_workers < 2:
        return
    if kind is None:
        if _trains_alone(request.script_layers) and not cluster.has_parameter_servers:
            yield Problem(
                where=f"environment: {VARIABLE}",
                expected=f"{VARIABLE} unset, or a config or script that trains with its workers",
                received=f"a cluster of {cluster.num_workers} workers, no strategy.kind, and a script that enters no "
                "strategy's scope",
                why="each of the workers would train a model of its own",
                fix=f"where it is a leftover: env -u {VARIABLE} tfvolta run ...; else: "
                "--set strategy.kind=multi_worker_mirrored",
            )
    else:
        yield Problem(
            where=f"environment: {VARIABLE}",
            expected=f"a cluster of one worker with strategy.kind: {kind}, or {VARIABLE} unset",
            received=f"a cluster of {cluster.num_workers} workers",
            why=f"{kind} trains in one process, so each of the workers would train a model of its own",
            fix=f"set strategy.kind: multi_worker_mirrored, or unset {VARIABLE}",
        )


def _trains_alone(called: frozenset[str]) -> bool:
    """Whether a script's source trains a model, and calls nothing that would spread that over several processes.

    Args:
        called: Names that the source calls; a script that leaves training to other modules is not judged.
    """
    return "fit" in called and not any(name in _SPREADING or name.endswith("Strategy") for name in called)


def _visible_contradictions(request: Request, user: Mapping[str, str]) -> Iterator[Problem]:
    visible, masked = request.get("devices.visible"), user.get("CUDA_VISIBLE_DEVICES")
    if visible is None or masked is None:
        return
    names = [name for name in masked.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    wanted = len(request.facts.gpus) if visible == "all" else len(visible)
    in_range = visible == "all" or all(index < len(names) for index in visible)
    if len(names) < wanted or not in_range:
        yield _problem(
            request, "devices.visible", "CUDA_VISIBLE_DEVICES", "a mask that leaves these GPUs visible", masked
        )
