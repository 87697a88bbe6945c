"""Flags for XLA_FLAGS and TF_XLA_FLAGS: which exist in a TensorFlow release, and merging a config's with the user's.

XLA reads XLA_FLAGS at the first compilation, TensorFlow reads TF_XLA_FLAGS when its context starts, and an unknown
flag ends the process there and then with no Python traceback. So flags are looked at before TensorFlow is.

Source: the lists in ``knobs/data`` were found by experiment with ``benchmarks/xla_flags/collect.py``.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.resources
import re
from typing import Any, Iterator, Mapping, Optional, Sequence

from tfvolta.errors import Problem

_FILES = {"XLA_FLAGS": "xla_flags", "TF_XLA_FLAGS": "tf_xla_flags"}
_FLAG = re.compile(r"--(?P<name>[A-Za-z0-9_-]+)(?:=(?P<value>.*))?", re.DOTALL)
_TRUE, _FALSE = ("true", "1"), ("false", "0")


@dataclasses.dataclass(frozen=True)
class FlagConflict:
    """A flag that the user's environment sets to one value and the config to another."""

    name: str
    user: str
    config: str

    def __str__(self) -> str:
        return f"--{self.name}={self.user}, where the config has --{self.name}={self.config}"


def check_flags(flags: Sequence[str], tensorflow_version: Optional[str], variable: str = "XLA_FLAGS") -> list[Problem]:
    """What is wrong with flags: malformed, unknown to this TensorFlow, without a value that it needs, contradictory.

    Where there is no list for the release, unknown flags are not found; ``unchecked_flags`` says so.

    Args:
        flags: One flag each, such as ``--xla_gpu_autotune_level=4``.
        tensorflow_version: Such as ``2.21.0``; None where TensorFlow is not installed.
        variable: ``XLA_FLAGS`` or ``TF_XLA_FLAGS``.
    """
    kinds = known_flags(tensorflow_version, variable)
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for flag in flags:
        match = _FLAG.fullmatch(flag)
        if match is None or re.search(r"\s", _unquoted(flag)):
            problems.append(_malformed(flag, variable))
            continue
        name, value = match["name"], match["value"]
        if kinds is not None:
            problems.extend(_unfit(name, value, kinds, str(tensorflow_version), variable))
        text = _normal(value)
        if seen.setdefault(name, text) != text:
            problems.append(
                Problem(
                    where=variable,
                    expected=f"one value for --{name}",
                    received=f"{seen[name]} and {text}",
                    why="the last one would win, whatever the first was for",
                    fix=f"keep one of the two --{name}",
                )
            )
    return problems


def unchecked_flags(
    flags: Sequence[str], tensorflow_version: Optional[str], variable: str = "XLA_FLAGS"
) -> Optional[str]:
    """Why flags could not be checked against a list, with what the nearest releases say; None where they were.

    Args:
        flags: As for ``check_flags``.
        tensorflow_version: As for ``check_flags``.
        variable: As for ``check_flags``.
    """
    names = [match["name"] for match in map(_FLAG.fullmatch, flags) if match]
    if not names or known_flags(tensorflow_version, variable) is not None:
        return None
    near = _nearest(tensorflow_version, variable)
    release = f"TensorFlow {tensorflow_version}" if tensorflow_version else "an unknown TensorFlow"
    parts = []
    for version in near:
        kinds = _read_list(version, variable)
        absent = [f"--{name}" for name in names if name not in kinds]
        parts.append(f"{version} {'lacks ' + ', '.join(absent) if absent else 'has them all'}")
    return (
        f"{variable}: there is no list of flags for {release}, so unknown ones cannot be found, and one of them would "
        f"end the process. Nearest lists: {'; '.join(parts)}"
    )


def known_flags(tensorflow_version: Optional[str], variable: str = "XLA_FLAGS") -> Optional[Mapping[str, str]]:
    """Kinds (bool, number, text, choice) of the flags of a release by name; None where there is no list.

    NVIDIA's containers have XLA of their own under TensorFlow's version (``2.17.0+nv25.2``), and so no list.
    """
    if tensorflow_version is None or "+" in tensorflow_version:
        return None
    release = ".".join(tensorflow_version.split(".")[:2])
    return _read_list(release, variable) if release in _releases(variable) else None


def parse_flags(text: str) -> dict[str, str]:
    """Values by name in the text of XLA_FLAGS; a flag without a value has ``true``, the last of several wins.

    Args:
        text: Such as ``--xla_gpu_autotune_level=4 --xla_dump_to="/tmp/my dump"``. Words that are no flag are left out.
    """
    matches = (_FLAG.fullmatch(word) for word in _words(text))
    return {match["name"]: _unquote(match["value"]) for match in matches if match}


def merge_flags(user_text: Optional[str], flags: Sequence[str]) -> tuple[str, list[FlagConflict]]:
    """The user's XLA_FLAGS with a config's flags added; where both set a flag, the user's value stays.

    Args:
        user_text: What the environment has; None where the variable is not set.
        flags: The config's, one each.

    Returns:
        The text to set, and the flags on which the two disagree.
    """
    user_text = user_text or ""
    users = parse_flags(user_text)
    wanted = parse_flags(" ".join(flags))
    stripped = user_text.strip()
    if stripped and not stripped.startswith("-"):
        # XLA takes such a text for the name of a file with flags, and then takes no flags beside it.
        return user_text, [FlagConflict(name, f"(unknown, in the file {stripped})", wanted[name]) for name in wanted]
    conflicts = [
        FlagConflict(name, users[name], value)
        for name, value in wanted.items()
        if name in users and _normal(users[name]) != _normal(value)
    ]
    added = [flag for flag in flags if (match := _FLAG.fullmatch(flag)) is None or match["name"] not in users]
    return " ".join(part for part in (stripped, *added) if part), conflicts


def _words(text: str) -> list[str]:
    """Splits at white space outside quotes, as XLA does."""
    return re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""", text)


def _unquote(value: Optional[str]) -> str:
    if value is None:
        return "true"
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _unquoted(flag: str) -> str:
    """A flag without what stands in quotes."""
    return re.sub(r"""(["']).*?\1""", "", flag)


def _normal(value: Optional[str]) -> str:
    text = _unquote(value)
    lower = text.lower()
    return "true" if lower in _TRUE else "false" if lower in _FALSE else text


def _malformed(flag: str, variable: str) -> Problem:
    words = _words(flag)
    bare = flag.strip().lstrip("-")
    if len(words) > 1 and all(_FLAG.fullmatch(word) for word in words):
        fix = f"make it {len(words)} entries: {', '.join(words)}"
    else:
        fix = f"write --{bare.replace(' ', '')}" if bare else "leave it out"
    return Problem(
        where=variable,
        expected="one flag in the form --name or --name=value",
        received=repr(flag),
        why="XLA takes a text that does not begin with -- for a file's name, and ends the process if it is not there",
        fix=fix,
    )


def _unfit(name: str, value: Optional[str], kinds: Mapping[str, str], version: str, variable: str) -> Iterator[Problem]:
    kind = kinds.get(name)
    if kind is None:
        yield _unknown(name, kinds, version, variable)
        return
    expected = {"bool": "true or false", "number": "a number"}.get(kind, "a value")
    if value is None:
        if kind != "bool":
            why = "without a value the flag is taken for an unknown one, which ends the process"
            yield Problem(variable, f"--{name}= and {expected}", f"--{name}", why, f"write --{name}=VALUE")
        return
    text = _unquote(value)
    # TensorFlow 2.15 does not take 1 and 0 for true and false.
    words = ("true", "false") if version.startswith("2.15") else (*_TRUE, *_FALSE)
    if (kind == "bool" and text.lower() not in words) or (kind == "number" and not _is_number(text)):
        why = "XLA cannot read the value, and ends the process"
        if version.startswith("2.15"):
            why = "TensorFlow 2.15 logs that it cannot read the value, and goes on without it"
        fix = f"write --{name}={'true' if kind == 'bool' else 'NUMBER'}, or leave the flag out"
        yield Problem(variable, f"--{name}= and {expected}", f"--{name}={value}", why, fix)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unknown(name: str, kinds: Mapping[str, str], version: str, variable: str) -> Problem:
    other = next(one for one in _FILES if one != variable)
    release = ".".join(version.split(".")[:2])
    elsewhere = [one for one in _releases(variable) if one != release and name in _read_list(one, variable)]
    close = difflib.get_close_matches(name.lower().replace("-", "_"), kinds, n=1, cutoff=0.8)
    if name in (known_flags(version, other) or {}):
        fix = f"it is a flag of {other}: set it there"
    elif close:
        fix = f"did you mean --{close[0]}?"
    elif elsewhere:
        fix = f"leave it out: it exists in TensorFlow {', '.join(elsewhere)} and not in this one"
    else:
        fix = "leave it out"
    return Problem(
        where=variable,
        expected=f"a flag that TensorFlow {release} knows ({len(kinds)} are)",
        received=f"--{name}",
        why="an unknown flag aborts the process at the first compilation, without a traceback"
        if variable == "XLA_FLAGS"
        else "an unknown flag aborts the process when TensorFlow starts its context, without a traceback",
        fix=fix,
    )


def _folder() -> Any:
    return importlib.resources.files("tfvolta.knobs") / "data"


@functools.cache
def _releases(variable: str) -> tuple[str, ...]:
    """Releases that have a list, oldest first."""
    pattern = re.compile(re.escape(_FILES[variable]) + r"_(\d+\.\d+)\.txt")
    found = [pattern.fullmatch(entry.name) for entry in _folder().iterdir()]
    return tuple(sorted((match.group(1) for match in found if match), key=_order))


@functools.cache
def _read_list(release: str, variable: str) -> Mapping[str, str]:
    text = (_folder() / f"{_FILES[variable]}_{release}.txt").read_text(encoding="utf-8")
    return dict(line.split(" ", 1) for line in text.splitlines() if line)


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _nearest(version: Optional[str], variable: str) -> list[str]:
    """The lists next below and next above a release; all of them where it is unknown."""
    releases = list(_releases(variable))
    if version is None:
        return releases
    wanted = _order(version)[:2]
    below = [one for one in releases if _order(one) <= wanted][-1:]
    above = [one for one in releases if _order(one) > wanted][:1]
    return below + above
