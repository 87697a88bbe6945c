"""Creates and reuses the project's virtual environments: ``python tools/environment.py keras3``."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Optional

import progress

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venv"
LOGS = VENVS / "logs"
_BROUGHT_BY_VENV = 2  # pip and setuptools


class Environment(NamedTuple):
    """One virtual environment.

    Attributes:
        extras: Extras of the package that it installs.
        constraints: File that pins every version.
        free_gib: Disk space that installing takes, with room for downloads.
    """

    extras: str
    constraints: str
    free_gib: float


ENVIRONMENTS = {
    "keras3": Environment("keras3,tf-keras,monitor,report,tune,dev", "keras3.txt", 4.0),
    "keras2": Environment("keras2,monitor,report,tune,test,examples", "keras2.txt", 4.0),
    "pure": Environment("monitor,report,tune,test,lint", "keras3.txt", 0.5),  # no TensorFlow in it
}


class SetupError(Exception):
    """An environment that cannot be made; the text says why and what to do."""


def python_of(name: str) -> Path:
    """The interpreter of an environment."""
    return VENVS / name / "bin" / "python"


def _answers(command: str) -> bool:
    """Whether a command is a Python 3.11 that can make environments; a version manager's shim may exist and fail."""
    check = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))"
    try:
        return subprocess.run([command, "-c", check], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_python() -> str:
    """A Python 3.11: the pinned versions of both TensorFlows have it in common.

    Raises:
        SetupError: There is none.
    """
    candidates = [sys.executable, "python3.11", "/usr/bin/python3.11", "/usr/local/bin/python3.11", "python3"]
    for command in candidates:
        if command and _answers(command):
            return command
    raise SetupError(
        f"Python 3.11 with venv was not found (this is Python {sys.version.split()[0]}).\n"
        "  expected: python3.11 on PATH, able to run `python3.11 -m venv`\n"
        "  why:      TensorFlow 2.15.1 and 2.21 with the pinned packages have only Python 3.11 in common\n"
        "  fix:      Debian and Ubuntu: apt-get install python3.11 python3.11-venv; or pyenv install 3.11"
    )


def key_of(name: str) -> str:
    """Changes when the environment must be installed anew: pyproject, constraints or place of the checkout."""
    environment = ENVIRONMENTS[name]
    digest = hashlib.sha256(f"{ROOT}\0{environment}".encode())
    for file in (ROOT / "pyproject.toml", ROOT / "constraints" / environment.constraints):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _is_ready(name: str) -> bool:
    stamp = VENVS / name / "tfvolta-stamp"
    return stamp.is_file() and stamp.read_text() == key_of(name) and os.access(python_of(name), os.X_OK)


def _check_space(name: str) -> None:
    free = shutil.disk_usage(VENVS).free / 2**30
    needed = ENVIRONMENTS[name].free_gib
    if free < needed:
        raise SetupError(
            f"Too little disk space for the environment {name}.\n"
            f"  expected: {needed:.1f} GiB free below {VENVS}\n  received: {free:.1f} GiB\n"
            "  fix:      free some space, or clone the repository to a larger disk"
        )


def _packages_in_place(name: str, line: str) -> str:
    """What pip is doing; while it unpacks it prints nothing, so the packages in place are counted."""
    if not line.startswith("Installing collected packages:"):
        return line
    done = len(list((VENVS / name).glob("lib/python3*/site-packages/*.dist-info")))
    return f"unpacking, {done} packages in place of about {line.count(',') + 1 + _BROUGHT_BY_VENV}"


def _run(name: str, step: str, command: list[str], commands: progress.Commands) -> None:
    label, log = f"{name}: {step}", LOGS / f"{name}-{step}.log"
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1", "PIP_NO_INPUT": "1"}
    describe = functools.partial(_packages_in_place, name)
    code = commands.run(label, command, log, {**os.environ, **settings}, describe)
    if code:
        raise SetupError(
            f"{label} failed with exit status {code}; the end of {log.relative_to(ROOT)}:\n{progress.tail(log, 25)}\n"
            "  fix:      if that names a network or disk error, mend it and run the same command again"
        )


def _check_extras(name: str) -> None:
    """Refuses an environment without what an extra brings: pip only warns about an extra that it does not know."""
    log = (LOGS / f"{name}-pip.log").read_text(encoding="utf-8", errors="replace")
    missing = [line for line in log.splitlines() if "does not provide the extra" in line]
    if missing:
        fix = "  fix: correct the extras in tools/environment.py or pyproject.toml"
        raise SetupError("\n".join([f"The environment {name} is incomplete.", *missing, fix]))


def _install(name: str, commands: progress.Commands) -> None:
    """Makes the environment when it is missing or broken, and installs into it."""
    environment = ENVIRONMENTS[name]
    _check_space(name)
    folder = VENVS / name
    (folder / "tfvolta-stamp").unlink(missing_ok=True)
    place = json.dumps(str(ROOT))
    owner = folder / "tfvolta-place"  # scripts in an environment hold its absolute path, so a moved one is broken
    if not (owner.is_file() and owner.read_text() == place and os.access(python_of(name), os.X_OK)):
        _run(name, "venv", [find_python(), "-m", "venv", "--clear", str(folder)], commands)
        owner.write_text(place)
    pip = [str(python_of(name)), "-m", "pip", "install", "--progress-bar", "off"]
    pins = ["-c", str(ROOT / "constraints" / environment.constraints)]
    target = f"{ROOT}[{environment.extras}]"
    _run(name, "pip", [*pip, *pins, "-e", target], commands)
    _check_extras(name)
    (folder / "tfvolta-stamp").write_text(key_of(name))


def ensure(name: str, commands: Optional[progress.Commands] = None) -> float:
    """Makes an environment usable and returns the seconds that it took; at once when nothing has changed.

    Raises:
        SetupError: It cannot be made.
    """
    started = time.monotonic()
    VENVS.mkdir(exist_ok=True)
    with (VENVS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second make waits instead of installing into the same folder
        if not _is_ready(name):
            progress.say(f"Installing the environment .venv/{name} (once; a few minutes on a slow network) ...")
            _install(name, commands or progress.Commands())
            progress.say(f"Installed .venv/{name} in {time.monotonic() - started:.0f} s.")
    return time.monotonic() - started


def main() -> int:
    """Makes the environments named on the command line."""
    names = sys.argv[1:]
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown or not names:
        print(f"usage: environment.py {{{','.join(ENVIRONMENTS)}}} ...", file=sys.stderr)
        return 2
    commands = progress.Commands()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name in names:
            ensure(name, commands)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        commands.stop_all()
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
