"""The user's config file with the settings that were found, its comments kept, and what each of them buys beside it."""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from tfvolta.config import load_config
from tfvolta.errors import Problem, TuneError

_PREFIX = "tfvolta:"
_WIDTH = 4096


@dataclasses.dataclass(frozen=True)
class Settings:
    """What makes the new config.

    Attributes:
        config: The user's file, which stays as it is, or a template, which the new config extends.
        overrides: What was given with it; part of the baseline, and so of the new config.
        words: The settings that were found.
    """

    config: Optional[str]
    overrides: tuple[str, ...]
    words: tuple[str, ...]


def tuned_text(settings: Settings, said: Mapping[str, str], head: Sequence[str], path: Path) -> str:
    """The text of the new config.

    Args:
        settings: What it shall say.
        said: What stands beside a key.
        head: Lines of a comment in front of all.
        path: Where it will lie, for what it extends.
    """
    yaml = YAML()
    yaml.version = (1, 2)
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    tree = _tree(yaml, settings.config)
    if settings.config is not None:
        _move(tree, settings.config, path)
    for word in (*settings.overrides, *settings.words):
        key, _, text = word.partition("=")
        note = said.get(key, "") if word in settings.words else ""
        _put(tree, key.split("."), YAML(typ="safe", pure=True).load(text), note)
    stream = io.StringIO()
    yaml.dump(tree, stream)
    text = _without_directive(stream.getvalue())
    comment = "".join(f"# {' '.join(line.split())}\n" if line else "#\n" for line in head)
    return comment + ("\n" if comment else "") + text


def write_tuned(path: Path, text: str, settings: Settings) -> None:
    """Writes the new config, and sees that it means what was measured.

    Args:
        path: Where to.
        text: Of ``tuned_text``.
        settings: What it shall say.

    Raises:
        TuneError: The file cannot be written, or would be another config.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        # Another name in the same folder, so that what it extends is found.
        written = load_config(str(unfinished))
        words = [*settings.overrides, *settings.words]
        wanted = load_config(settings.config or f"{_PREFIX}default", overrides=words)
        if written != wanted:
            unfinished.unlink()
            raise _differs(path)
        unfinished.replace(path)
    except OSError as error:
        problem = Problem(str(path), "a file that can be written", f"{type(error).__name__}: {error.strerror or error}")
        raise TuneError("The tuned config cannot be written; the result above holds.", [problem]) from error


def tuned_path(config: Optional[str], output: Optional[str], folder: Path) -> Path:
    """Where the new config goes: where it was asked for, or beside the user's file, or into the search's folder."""
    if output is not None:
        return Path(output)
    if config is None or config.startswith(_PREFIX):
        return folder / "tuned.yaml"
    own = Path(os.path.expanduser(config))
    return own.with_name(f"{own.stem}.tuned{own.suffix or '.yaml'}")


def _tree(yaml: Any, config: Optional[str]) -> Any:
    if config is None or config.startswith(_PREFIX):
        return CommentedMap({"extends": config or f"{_PREFIX}default"})
    tree = yaml.load(Path(os.path.expanduser(config)).read_text(encoding="utf-8"))
    return CommentedMap() if tree is None else tree


def _move(tree: Any, config: str, path: Path) -> None:
    """Makes relative references of a file good for another folder."""
    here = Path(os.path.expanduser(config)).absolute().parent
    if config.startswith(_PREFIX) or path.absolute().parent == here or "extends" not in tree:
        return
    names = tree["extends"]
    found = [_from(here, name) for name in (names if isinstance(names, list) else [names])]
    tree["extends"] = found if isinstance(names, list) else found[0]


def _from(folder: Path, name: str) -> str:
    plain = name.startswith((_PREFIX, "/", "~", "$"))
    return name if plain else str(folder / name)


def _put(tree: Any, parts: Sequence[str], value: Any, said: str) -> None:
    """Sets a value; a section is made where it is missing, and joined with what is there where it is not."""
    name = parts[0]
    if len(parts) > 1 or isinstance(value, dict):
        if not isinstance(tree.get(name), dict):
            tree[name] = CommentedMap()
        inner = {tuple(parts[1:]): value} if len(parts) > 1 else {(key,): item for key, item in value.items()}
        for path, item in inner.items():
            _put(tree[name], path, item, said)
        return
    tree[name] = value
    if said and isinstance(tree, CommentedMap) and not tree.fa.flow_style():
        tree.yaml_add_eol_comment(" ".join(said.split()), name)


def _without_directive(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and (lines[0].startswith("%YAML") or lines[0].strip() == "---"):
        lines.pop(0)
    return "".join(lines)


def _differs(path: Path) -> TuneError:
    problem = Problem(
        where=str(path),
        expected="the config that was measured",
        received="a file that would mean something else",
        fix="take the settings from the result, and write them by hand",
    )
    return TuneError("The tuned config cannot be written from this file.", [problem])
