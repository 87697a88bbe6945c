"""One contender: a config, with what is changed, for a workload that all contenders share."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from tfvolta.bench.workloads.workload import Sizes
from tfvolta.errors import ConfigError, Problem

# A config that is none: the script runs under plain Python, as somebody who does not know tfvolta runs it.
UNTOUCHED = "none"
SCRIPT = str(Path(__file__).with_name("train.py"))
_STACKS = ("keras3", "tf_keras")
_OWN_KEYS = ("name", "stack", "workers", "batch", "python")
_SEVERAL = ("multi_worker_mirrored", "horovod", "parameter_server")


@dataclasses.dataclass(frozen=True)
class Contender:
    """One of those that are compared.

    Attributes:
        name: Unique among them.
        config: File or name of a config; None for the embedded default, ``none`` for the untouched script.
        overrides: ``KEY=VALUE``, as for ``--set``.
        stack: ``keras3`` or ``tf_keras`` instead of that of the environment; both are TensorFlow 2.21's.
        workers: Processes; more than one are started by ``tfvolta launch``.
        batch: Examples of a step, instead of the workload's.
        python: Another interpreter, such as one with another TensorFlow.
    """

    name: str
    config: Optional[str] = None
    overrides: tuple[str, ...] = ()
    stack: Optional[str] = None
    workers: int = 1
    batch: Optional[int] = None
    python: Optional[str] = None

    @property
    def is_untouched(self) -> bool:
        """Whether tfvolta has no part in it."""
        return self.config == UNTOUCHED

    @property
    def words(self) -> str:
        """As ``--against`` takes it."""
        own = {"name": self.name, "stack": self.stack, "batch": self.batch, "python": self.python}
        given = [f"{key}={value}" for key, value in own.items() if value is not None]
        given += [f"workers={self.workers}"] if self.workers > 1 else []
        return shlex.join([self.config or "tfvolta:default", *self.overrides, *given])

    @property
    def environment(self) -> dict[str, str]:
        """Variables for its process: the stack, and memory as it is needed, since contenders share the GPUs."""
        found = {} if self.stack is None else {"TF_USE_LEGACY_KERAS": "1" if self.stack == "tf_keras" else "0"}
        config = self.load()
        if config is None or config.get("devices.memory_growth") is None:
            found["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        return found

    def load(self) -> Any:
        """Its config; None for the untouched script.

        Raises:
            ConfigError: It cannot be used; all problems at once.
        """
        if self.is_untouched:
            return None
        from tfvolta.config import load_config

        return load_config(self.config or "tfvolta:default", overrides=list(self.overrides))


def parse(text: str, reference: Contender) -> Contender:
    """A contender from the words of ``--against``.

    Args:
        text: A config's file or name, overrides ``section.key=value``, and ``name=``, ``stack=``, ``workers=``,
            ``batch=`` and ``python=``, with spaces between. Without a config it is the reference with these changes.
        reference: What it is compared with.

    Raises:
        ConfigError: A word is none of these.
    """
    own: dict[str, Any] = {}
    overrides: list[str] = []
    configs: list[str] = []
    problems: list[Problem] = []
    for word in _split(text):
        key, equals, value = word.partition("=")
        if equals and key in _OWN_KEYS:
            own[key] = _own(key, value, problems)
        elif equals and not Path(word).exists():
            overrides.append(word)
        else:
            configs.append(word)
    if len(configs) > 1:
        problems.append(Problem(f"--against {text!r}", "one config", ", ".join(configs), fix="give --against for each"))
    if problems:
        raise ConfigError("This contender cannot be used.", problems)
    name = own.pop("name", None) or text.strip() or "the same"
    if configs:
        found = Contender(name, configs[0], tuple(overrides), python=reference.python)
    else:
        config = None if reference.is_untouched and overrides else reference.config
        found = dataclasses.replace(reference, name=name, config=config, overrides=(*reference.overrides, *overrides))
    return dataclasses.replace(found, **own)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        problem = Problem(f"--against {text!r}", "words with spaces between", str(error))
        raise ConfigError("This contender cannot be used.", [problem]) from error


def _own(key: str, value: str, problems: list[Problem]) -> Any:
    if key in ("workers", "batch"):
        if value.isdigit() and int(value) > 0:
            return int(value)
        problems.append(Problem(f"--against {key}", "a whole number above 0", value or "nothing"))
    elif key == "stack" and value not in _STACKS:
        fix = "keras2 is another TensorFlow: python=.venv/keras2/bin/python"
        problems.append(Problem("--against stack", f"one of {', '.join(_STACKS)}", value or "nothing", fix=fix))
    elif key == "python" and not os.access(value, os.X_OK):
        problems.append(Problem("--against python", "a program that can be run", value or "nothing"))
    return value


@dataclasses.dataclass(frozen=True)
class Course:
    """What every contender trains.

    Attributes:
        model: Name of the workload.
        sizes: Of the workload.
        steps: Of an epoch.
        warmup_epochs: Epochs that are not measured.
        rounds: Epochs that are.
        data: ``FILE.npz`` or ``module:function``; None for synthetic data.
    """

    model: str
    sizes: Sizes
    steps: int
    warmup_epochs: int
    rounds: int
    data: Optional[str] = None


def command(contender: Contender, course: Course, seed: int, directory: Path) -> list[str]:
    """The command line of a contender.

    Args:
        contender: Which.
        course: What it trains.
        seed: Of weights, dropout and the order of the data.
        directory: Folder that takes its evidence.
    """
    script = [SCRIPT, *_script_arguments(contender, course, seed)]
    python = contender.python or sys.executable
    if contender.is_untouched:
        return [python, *script]
    config = contender.load()
    given = list(contender.overrides)
    if contender.workers > 1 and config.get("watchdog.stall_seconds") is None:
        given.append("watchdog.stall_seconds=3600")  # between its turns a contender makes no progress
    options = ["--config", contender.config or "tfvolta:default", "--directory", str(directory), "--json", "--quiet"]
    for each in given:
        options += ["--set", each]
    launch = ["launch", "--workers", str(contender.workers)] if contender.workers > 1 else ["run"]
    return [python, "-m", "tfvolta", *launch, *options, *script]


def _script_arguments(contender: Contender, course: Course, seed: int) -> list[str]:
    sizes = course.sizes.to_json()
    if contender.batch is not None:
        sizes["batch"] = contender.batch
    found = [course.model, "--sizes", json.dumps(sizes), "--steps", str(course.steps), "--seed", str(seed)]
    found += ["--warmup-epochs", str(course.warmup_epochs), "--rounds", str(course.rounds)]
    found += ["--data", course.data] if course.data is not None else []
    config = contender.load()
    is_horovod = config is not None and config.get("strategy.kind") == "horovod"
    if contender.workers > 1 and is_horovod and config.get("data.sharding") != "data":
        found += ["--ranks", str(contender.workers)]
    return found


def problems(contenders: Sequence[Contender], environ: Mapping[str, str]) -> list[Problem]:
    """Everything that can be seen before a process is started."""
    found: list[Problem] = []
    names = [contender.name for contender in contenders]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(Problem("contenders", "a name of its own for each", f"{name} twice", fix="--against '... name=b'"))
    for contender in contenders:
        found += _of_one(contender, environ)
    return found


def _of_one(contender: Contender, environ: Mapping[str, str]) -> list[Problem]:
    try:
        config = contender.load()
    except ConfigError as error:
        return list(error.problems)
    kind = "default" if config is None else str(config.get("strategy.kind") or "default")
    if contender.workers > 1 and kind not in _SEVERAL:
        fix = f"--against '{contender.words} strategy.kind=multi_worker_mirrored'"
        expected = f"strategy.kind of {', '.join(_SEVERAL)} for {contender.workers} workers"
        return [Problem(f"contender {contender.name}", expected, kind, "others train in one process", fix)]
    if contender.workers == 1 and kind in _SEVERAL and "TF_CONFIG" not in environ:
        fix = "workers=2 among the words of --against, or --workers 2"
        return [Problem(f"contender {contender.name}", f"several workers for strategy.kind: {kind}", "1", fix=fix)]
    return []
