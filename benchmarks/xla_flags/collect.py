"""Finds out by experiment which flags an installed TensorFlow accepts in XLA_FLAGS and TF_XLA_FLAGS.

    python benchmarks/xla_flags/collect.py --python .venv/bin/python --out tfvolta/knobs/data

An unknown flag aborts the process, and TensorFlow's Python API has no list of the known ones. So every string of
the wheel's shared libraries that looks like a flag is passed in the variable to a process that starts TensorFlow
and compiles; the fatal message names the flags that are unknown. A flag that surely does not exist rides
along, so that the process always stops while it parses, before any odd value has a consequence.

Each line of the result is a flag's name and what follows it: ``bool`` (stands alone or takes true and false),
``number`` or ``text`` (needs =VALUE; without one the flag is itself reported as unknown) or ``choice`` (needs one
of a few words). The kinds are found the same way: bare, with =1, with a value that is no number.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
from typing import Iterable, NamedTuple

SENTINEL = "xla_surely_not_a_flag"
CHUNK = 120  # absl cuts a log message at 15000 characters
CANDIDATES = {"XLA_FLAGS": rb"xla_[a-z0-9_]+", "TF_XLA_FLAGS": rb"(?:tf_)[a-z0-9_]{3,80}"}
# Imports TensorFlow once, and forks for each trial: neither variable is read before the child starts TensorFlow.
SERVER = """
import json, os, sys, tempfile
import tensorflow as tf
for line in sys.stdin:
    variable, text = json.loads(line)
    with tempfile.TemporaryFile("w+b") as heard:
        child = os.fork()
        if child == 0:
            os.dup2(heard.fileno(), 2)
            os.environ[variable] = text
            x = tf.constant(1.0)
            if variable == "XLA_FLAGS":
                tf.function(lambda x: x + 1.0, jit_compile=True)(x)
            os._exit(0)
        os.waitpid(child, 0)
        heard.seek(0)
        print(json.dumps(heard.read().decode("utf-8", "replace")), flush=True)
"""
FILES = {"XLA_FLAGS": "xla_flags", "TF_XLA_FLAGS": "tf_xla_flags"}


class Answer(NamedTuple):
    """What the process said of the flags it was given: unknown, or their value named as unreadable, or just refused."""

    unknown: set[str]
    unreadable: set[str]
    refused: set[str]


def candidates(folder: pathlib.Path, variable: str) -> set[str]:
    """Every string of the wheel's shared libraries that could be a flag."""
    names = set()
    for path in [*folder.glob("libtensorflow_*.so.2"), *folder.glob("python/*.so")]:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names |= {match.group().decode() for match in re.finditer(CANDIDATES[variable], content)}
    return {name for name in names if not name.endswith("_") and "__" not in name}


class Process:
    """A TensorFlow that can be asked about flags.

    Args:
        python: Interpreter of the environment with TensorFlow.
        variable: XLA_FLAGS or TF_XLA_FLAGS.
    """

    def __init__(self, python: str, variable: str):
        environ = {name: value for name, value in os.environ.items() if name not in FILES}
        environ.update(TF_CPP_MIN_LOG_LEVEL="0", CUDA_VISIBLE_DEVICES="")
        self.variable = variable
        self.server = subprocess.Popen(
            [python, "-c", SERVER],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def said(self, flags: list[str]) -> str:
        """The log of a process that was given the flags, and the one that does not exist."""
        assert self.server.stdin is not None and self.server.stdout is not None
        question = json.dumps([self.variable, " ".join([*flags, f"--{SENTINEL}"])])
        self.server.stdin.write(question.encode() + b"\n")
        self.server.stdin.flush()
        return str(json.loads(self.server.stdout.readline()))

    def close(self) -> None:
        """Ends the process."""
        self.server.communicate()


def ask(process: Process, flags: list[str]) -> Answer:
    """Passes flags to a process that parses them; reads which it calls unknown and which values it cannot read."""
    log = process.said(flags)
    unreadable = set(re.findall(r"Couldn't interpret value .* for flag (\w+)", log))
    refused = set(re.findall(r"Illegal value for --(\w+)", log))
    found = re.search(rf"Unknown flags? in {process.variable}: (.*)", log)
    if found is None and not unreadable and not refused:
        return halves(process, flags)
    # TensorFlow 2.15 goes on after the unknown flags, past an empty word, with flags that it knows.
    unknown = set(re.findall(r"--(\w+)", found.group(1).split("  ")[0])) if found else set()
    if found and SENTINEL not in unknown:
        raise SystemExit(f"the list of unknown flags was cut: {found.group(1)[-300:]}")
    return Answer(unknown - {SENTINEL}, unreadable, refused)


def halves(process: Process, flags: list[str]) -> Answer:
    """Narrows down to the flag that stops the parser without a word of its own: it exists and refuses its value."""
    if not flags:
        raise SystemExit(f"the process does not name --{SENTINEL}:\n{process.said(flags)[-3000:]}")
    if len(flags) == 1:
        return Answer(set(), set(), {flags[0].lstrip("-").split("=")[0]})
    middle = len(flags) // 2
    first, second = ask(process, flags[:middle]), ask(process, flags[middle:])
    return Answer(*(a | b for a, b in zip(first, second)))


def chunks(names: Iterable[str]) -> list[list[str]]:
    """The names in portions whose report fits into one message."""
    ordered = sorted(names)
    return [ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK)]


def known(process: Process, names: Iterable[str], value: str) -> tuple[set[str], set[str]]:
    """Among names: the flags that accept a value, and the flags that exist and refuse it."""
    refusing: set[str] = set()
    while True:
        rest = [name for name in names if name not in refusing]
        answer = ask(process, [f"--{name}{value}" for name in rest])
        # A refused value can keep the parser from naming the unknown flags, so ask again without those.
        if not answer.unreadable and not answer.refused:
            return set(rest) - answer.unknown, refusing
        refusing |= answer.unreadable | answer.refused


def collect(process: Process, names: set[str]) -> dict[str, str]:
    """Kinds of the flags that exist, by name."""
    kinds: dict[str, str] = {}
    for part in chunks(names):
        bare, refusing_bare = known(process, part, "")
        kinds.update(dict.fromkeys(bare, "bool"))
        rest = sorted(set(part) - bare - refusing_bare)
        takes_one, choices = known(process, rest, "=1")
        kinds.update(dict.fromkeys(choices | refusing_bare, "choice"))
        wordy = ask(process, [f"--{name}=no-number" for name in sorted(takes_one)])
        for name in takes_one:
            kinds[name] = "number" if name in wordy.unreadable else "choice" if name in wordy.refused else "text"
        print(f"{process.variable}: {len(part)} tried, {len(kinds)} flags so far", file=sys.stderr)
    confirm(process, kinds)
    return kinds


def confirm(process: Process, kinds: dict[str, str]) -> None:
    """All flags found, passed at once where a value is sure to be readable, are known.

    Raises:
        SystemExit: One is not.
    """
    flags = [f"--{name}" if kind == "bool" else f"--{name}=1" for name, kind in kinds.items() if kind != "choice"]
    answer = ask(process, flags)
    if any(answer):
        raise SystemExit(f"{process.variable}: not confirmed: {answer}")


def main() -> None:
    """Writes one file per variable."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment with TensorFlow")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the lists")
    arguments = parser.parse_args()
    code = (
        "import importlib.metadata as m, importlib.util as u, json;"
        "print(json.dumps([m.version('tensorflow'), u.find_spec('tensorflow').submodule_search_locations[0]]))"
    )
    found = subprocess.run([arguments.python, "-c", code], capture_output=True, text=True, check=True)
    version, folder = json.loads(found.stdout)
    for variable, stem in FILES.items():
        process = Process(arguments.python, variable)
        kinds = collect(process, candidates(pathlib.Path(folder), variable))
        process.close()
        path = arguments.out / f"{stem}_{'.'.join(version.split('.')[:2])}.txt"
        path.write_text("".join(f"{name} {kind}\n" for name, kind in sorted(kinds.items())), encoding="utf-8")
        print(f"{path}: {len(kinds)} flags")


if __name__ == "__main__":
    main()
