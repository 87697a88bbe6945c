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
PROGRAMS = {
    "XLA_FLAGS": "import tensorflow as tf; tf.function(lambda x: x + 1.0, jit_compile=True)(tf.constant(1.0))",
    "TF_XLA_FLAGS": "import tensorflow as tf; tf.constant(1.0)",
}
FILES = {"XLA_FLAGS": "xla_flags", "TF_XLA_FLAGS": "tf_xla_flags"}


class Answer(NamedTuple):
    """What the process said of the flags it was given."""

    unknown: set[str]
    unreadable: set[str]


def candidates(folder: pathlib.Path, variable: str) -> set[str]:
    """Every string of the wheel's shared libraries that could be a flag."""
    names = set()
    for path in [*folder.glob("libtensorflow_*.so.2"), *folder.glob("python/*.so")]:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names |= {match.group().decode() for match in re.finditer(CANDIDATES[variable], content)}
    return {name for name in names if not name.endswith("_") and "__" not in name}


def ask(python: str, variable: str, flags: list[str]) -> Answer:
    """Passes flags to a process that parses them; reads which it calls unknown and which values it cannot read."""
    environ = {
        **os.environ,
        variable: " ".join([*flags, f"--{SENTINEL}"]),
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run([python, "-c", PROGRAMS[variable]], env=environ, capture_output=True, text=True, check=False)
    unreadable = set(re.findall(r"Couldn't interpret value .* for flag (\w+)", done.stderr))
    unreadable |= set(re.findall(r"Illegal value for --(\w+)", done.stderr))
    found = re.search(rf"Unknown flags? in {variable}: (.*)", done.stderr)
    if found is None and not unreadable:
        return halves(python, variable, flags)
    # TensorFlow 2.15 goes on after the unknown flags, past an empty word, with flags that it knows.
    unknown = set(re.findall(r"--(\w+)", found.group(1).split("  ")[0])) if found else set()
    if found and SENTINEL not in unknown:
        raise SystemExit(f"the list of unknown flags was cut: {found.group(1)[-300:]}")
    return Answer(unknown - {SENTINEL}, unreadable)


def halves(python: str, variable: str, flags: list[str]) -> Answer:
    """Narrows down to the flag that stops the parser without a word of its own: it exists and refuses its value."""
    if len(flags) == 1:
        return Answer(set(), {flags[0].lstrip("-").split("=")[0]})
    middle = len(flags) // 2
    first, second = ask(python, variable, flags[:middle]), ask(python, variable, flags[middle:])
    return Answer(first.unknown | second.unknown, first.unreadable | second.unreadable)


def chunks(names: Iterable[str]) -> list[list[str]]:
    """The names in portions whose report fits into one message."""
    ordered = sorted(names)
    return [ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK)]


def with_value(python: str, variable: str, names: list[str]) -> tuple[set[str], set[str]]:
    """Among flags that need a value: those that accept 1, and those that exist and accept only some words."""
    choices: set[str] = set()
    while True:
        rest = [name for name in names if name not in choices]
        answer = ask(python, variable, [f"--{name}=1" for name in rest])
        if not answer.unreadable:
            return set(rest) - answer.unknown, choices
        choices |= answer.unreadable


def collect(python: str, variable: str, names: set[str]) -> dict[str, str]:
    """Kinds of the flags that exist, by name."""
    kinds: dict[str, str] = {}
    for part in chunks(names):
        unknown = ask(python, variable, [f"--{name}" for name in part]).unknown
        kinds.update({name: "bool" for name in part if name not in unknown})
        takes_one, choices = with_value(python, variable, sorted(unknown))
        kinds.update(dict.fromkeys(choices, "choice"))
        numbers = ask(python, variable, [f"--{name}=no-number" for name in sorted(takes_one)]).unreadable
        kinds.update({name: "number" if name in numbers else "text" for name in takes_one})
        print(f"{variable}: {len(part)} tried, {len(kinds)} flags so far", file=sys.stderr)
    confirm(python, variable, kinds)
    return kinds


def confirm(python: str, variable: str, kinds: dict[str, str]) -> None:
    """All flags found, passed at once where a value is sure to be readable, are known.

    Raises:
        SystemExit: One is not.
    """
    flags = [f"--{name}" if kind == "bool" else f"--{name}=1" for name, kind in kinds.items() if kind != "choice"]
    answer = ask(python, variable, flags)
    if answer.unknown or answer.unreadable:
        raise SystemExit(f"{variable}: not confirmed: {answer}")


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
        kinds = collect(arguments.python, variable, candidates(pathlib.Path(folder), variable))
        path = arguments.out / f"{stem}_{'.'.join(version.split('.')[:2])}.txt"
        path.write_text("".join(f"{name} {kind}\n" for name, kind in sorted(kinds.items())), encoding="utf-8")
        print(f"{path}: {len(kinds)} flags")


if __name__ == "__main__":
    main()
