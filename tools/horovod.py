"""Builds Horovod against an environment's TensorFlow, once, for the tests: ``python tools/horovod.py keras2``.

Horovod comes as source only and compiles against the TensorFlow that is installed. The wheel is kept under
``.venv/wheels``; it is installed into a folder of its own, ``.venv/horovod/<environment>``, so that the environment
itself stays without Horovod and both cases can be tested.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Optional

import environment
import progress

VERSION = "0.28.1"
WHEELS = environment.VENVS / "wheels"
PLACE = environment.VENVS / "horovod"
SECONDS = 1800.0
# HOROVOD_WITH_TENSORFLOW turns a build without TensorFlow, which would install all the same, into an error.
SETTINGS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 refuses the minimum that Gloo states
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
}
TOOLS = {"c++": "g++", "make": "make", "cmake": "cmake"}
INSTALL = "Debian and Ubuntu: apt-get install g++ make cmake"
# Horovod's operations for XLA need headers that TensorFlow 2.19 and later do not ship; they exist for CUDA only.
XLA_SOURCE = ("horovod/tensorflow/CMakeLists.txt", re.compile(r"^.*xla_mpi_ops\.cc.*\n", re.MULTILINE))
# Debug information is fifty times the size of the library.
DEBUG_FLAGS = ("CMakeLists.txt", re.compile(r"^# RelWithDebInfo uses -O2.*\n", re.MULTILINE))
NO_DEBUG = 'set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g0 -DNDEBUG")\n'


class BuildError(Exception):
    """Horovod could not be built although the tools for it are there; the text says what to do."""


def folder_of(name: str) -> Path:
    """The folder to put on ``PYTHONPATH`` of an environment's Python."""
    return PLACE / name


def reason_file(name: str) -> Path:
    """Holds one line that says why there is no Horovod for an environment; absent where there is."""
    return PLACE / f"{name}.txt"


def missing_tools() -> list[str]:
    """Commands that compiling needs and that are not on PATH."""
    return [package for command, package in TOOLS.items() if shutil.which(command) is None]


def key_of(name: str) -> str:
    """What a wheel was built for: versions of Horovod, TensorFlow and Python."""
    code = (
        "import importlib.metadata as m, sys; "
        "print(f'tensorflow-{m.version(\"tensorflow\")}-cp{sys.version_info[0]}{sys.version_info[1]}')"
    )
    done = subprocess.run([str(environment.python_of(name)), "-c", code], capture_output=True, text=True, check=True)
    return f"horovod-{VERSION}-{done.stdout.strip()}"


def ensure(name: str, commands: Optional[progress.Commands] = None) -> Optional[str]:
    """Puts Horovod beside an environment that exists; at once when it is there already.

    Returns:
        Why there is none, in a line, where the tools to compile it are missing; None where it is in place.

    Raises:
        BuildError: Compiling or installing failed.
    """
    started = time.monotonic()
    for folder in (PLACE, WHEELS):
        folder.mkdir(parents=True, exist_ok=True)
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        key = key_of(name)
        stamp = folder_of(name) / "tfvolta-stamp"
        if stamp.is_file() and stamp.read_text() == key:
            return None
        if _wheel(key) is None and missing_tools():
            reason = f"Horovod is not built: {', '.join(missing_tools())} not found on PATH. {INSTALL}"
            reason_file(name).write_text(reason + "\n")
            return reason
        commands = commands or progress.Commands()
        if _wheel(key) is None:
            progress.say(f"Building Horovod {VERSION} for {name} beside the other work (once; some minutes) ...")
            _build(name, key, commands)
        _install(name, key, commands)
        reason_file(name).unlink(missing_ok=True)
        stamp.write_text(key)
    progress.say(f"Horovod {VERSION} is in .venv/horovod/{name} after {time.monotonic() - started:.0f} s.")
    return None


def _wheel(key: str) -> Optional[Path]:
    return next(iter((WHEELS / key).glob("horovod-*.whl")), None)


def _run(name: str, step: str, command: list[str], commands: progress.Commands) -> None:
    """Runs pip at low priority, since tests run at the same time."""
    label, log = f"{name}: {step}", environment.LOGS / f"{name}-{step.replace(' ', '-')}.log"
    cores = str(os.cpu_count() or 1)
    # Horovod's set-up calls cmake through PATH, and cmake asks the first Python on PATH for TensorFlow.
    path = os.pathsep.join([str(environment.python_of(name).parent), os.environ.get("PATH", "")])
    variables = {**os.environ, **SETTINGS, "MAKEFLAGS": f"-j{cores}", "PATH": path, "PYTHONUNBUFFERED": "1"}
    variables.pop("PYTHONPATH", None)
    pip = ["nice", "-n", "10"] if shutil.which("nice") else []
    pip += [str(environment.python_of(name)), "-m", "pip", *command]
    if commands.run(label, pip, log, variables, functools.partial(_compiled, log), SECONDS):
        raise BuildError(
            f"{label} failed; the end of {log.relative_to(environment.ROOT)}:\n{progress.tail(log, 30)}\n"
            f"  why:      Horovod {VERSION} is compiled from source against the TensorFlow of .venv/{name}\n"
            f"  fix:      a C++17 compiler and CMake are needed. {INSTALL}"
        )


def _compiled(log: Path, line: str) -> str:
    """How far the compiler is: make's last ``[ 45%] Building CXX object ...``, whose command lines come after it."""
    found = re.findall(r"^\s*\[\s*(\d+)%\].*?([\w.-]+)$", log.read_text(errors="replace"), re.MULTILINE)
    return f"{found[-1][0]} %, {found[-1][1]}" if found else line


def _build(name: str, key: str, commands: progress.Commands) -> None:
    """Fetches the source, edits two lines of its CMake files, and makes a wheel."""
    sources = WHEELS / key / "source"
    shutil.rmtree(WHEELS / key, ignore_errors=True)
    sources.mkdir(parents=True)
    no_index = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    _run(name, "Horovod source", ["download", *no_index, "-d", str(WHEELS / key), f"horovod=={VERSION}"], commands)
    archive = next((WHEELS / key).glob("horovod-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(sources)
    (source,) = sources.iterdir()
    for (file, pattern), text in ((XLA_SOURCE, ""), (DEBUG_FLAGS, NO_DEBUG)):
        content, count = pattern.subn(text, (source / file).read_text())
        if count != 1:
            raise BuildError(f"{file} of Horovod {VERSION} has changed: {pattern.pattern} occurs {count} times in it")
        (source / file).write_text(content)
    build = ["wheel", "-v", "--no-deps", "--no-build-isolation", "-w", str(WHEELS / key), str(source)]
    _run(name, "Horovod build", build, commands)
    shutil.rmtree(sources)


def _install(name: str, key: str, commands: progress.Commands) -> None:
    """Installs the wheel and what Horovod needs into the folder beside the environment."""
    wheel = _wheel(key)
    shutil.rmtree(folder_of(name), ignore_errors=True)
    pins = environment.ROOT / "constraints" / environment.ENVIRONMENTS[name].constraints
    target = ["install", "--progress-bar", "off", "--target", str(folder_of(name)), "-c", str(pins)]
    _run(name, "Horovod install", [*target, str(wheel)], commands)


class Builds:
    """Builds for several environments, one after another, beside whatever else runs.

    Attributes:
        names: The environments.
        reasons: Why there is no Horovod for an environment although nothing failed, by its name.
    """

    def __init__(self, names: list[str], commands: progress.Commands):
        self.names = names
        self.reasons: dict[str, Optional[str]] = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._commands = commands
        self._builds = {name: self._pool.submit(self._one, name) for name in names}

    def wait(self, name: str) -> Optional[Exception]:
        """Waits for one environment's build; why it failed, or None."""
        return self._builds[name].result()

    def is_done(self, name: str) -> bool:
        """Whether nobody would wait for that build."""
        return self._builds[name].done()

    def _one(self, name: str) -> Optional[Exception]:
        try:
            environment.ensure(name, self._commands)
            self.reasons[name] = ensure(name, self._commands)
        except (BuildError, environment.SetupError) as error:
            return error
        return None


def main() -> int:
    """Builds for the environments named on the command line, which must exist."""
    names = sys.argv[1:]
    if not names or set(names) - set(environment.ENVIRONMENTS) - {"pure"}:
        print("usage: horovod.py {keras3,keras2} ...", file=sys.stderr)
        return 2
    try:
        for name in names:
            environment.ensure(name)
            reason = ensure(name)
            if reason:
                print(reason, file=sys.stderr)
                return 2
    except (environment.SetupError, BuildError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
