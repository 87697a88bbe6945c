"""From files, overrides and arguments to a checked ``Config`` that knows where each of its values came from."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence, Union

from pydantic import ValidationError

from tfvolta.config.catalogue import section_class
from tfvolta.config.entry import Entry, leaves, merge
from tfvolta.config.extends import file_layers
from tfvolta.config.files import DEFAULT_TEMPLATE
from tfvolta.config.given import Given, GivenFile
from tfvolta.config.overrides import argument_layer, override_layers
from tfvolta.config.problems import check
from tfvolta.config.scalars import yaml_type
from tfvolta.config.schema import Config
from tfvolta.config.section import Section
from tfvolta.errors import ConfigError, Problem

ConfigPath = Union[str, "os.PathLike[str]"]


def load_config(
    path: Optional[ConfigPath] = None,
    overrides: Sequence[str] = (),
    *,
    environ: Mapping[str, str] = os.environ,
    **sections: Any,
) -> Config:
    """Loads a config; a reader gains a frozen ``Config`` in which every value is valid and has a known origin.

    Later places win over earlier ones: the files that ``extends`` names, the file itself, overrides in their order,
    arguments. Mappings are merged, lists are replaced, null in place of a section removes it.

    Args:
        path: A YAML 1.2 file, or ``tfvolta:NAME`` for a template of the package. None is ``tfvolta:default``,
            or nothing at all where sections are given as arguments.
        overrides: Such as ``["xla.jit=off", "devices.visible=[0, 1]", "strategy=null"]``; values are YAML.
        environ: Where ``~`` and ``$NAME`` in paths are looked up.
        **sections: Whole or partial sections, such as ``strategy={"kind": "mirrored"}``, as a dict, as an instance
            of the section's class, or None to remove it.

    Raises:
        ConfigError: Something in any of these cannot be used; it holds every problem found, not just the first.
    """
    problems: list[Problem] = []
    layers: list[Entry] = []
    files: list[GivenFile] = []
    reference = _reference(path, bool(sections), problems)
    if reference is not None:
        layers += file_layers(reference, environ, problems, files)
    layers += override_layers(overrides, problems)
    arguments = argument_layer(sections, problems)
    if arguments is not None:
        layers.append(arguments)
    for layer in layers:
        problems += check(layer)
    if problems:
        _refuse(problems, reference)
    config = _built(merge(layers), reference)
    config.take_given(Given(reference, tuple(files), tuple(overrides)))
    return config


def _reference(path: Any, sections_given: bool, problems: list[Problem]) -> Optional[str]:
    if path is None:
        return None if sections_given else DEFAULT_TEMPLATE
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if isinstance(text, str) and text:
        return text
    received = f"{path!r}, {yaml_type(path)}"
    problems.append(Problem("path", "the path of a config file", received, "", f'load_config("{DEFAULT_TEMPLATE}")'))
    return None


def _built(tree: dict[str, Entry], reference: Optional[str]) -> Config:
    try:
        config = Config.model_validate(_given(Config, tree))
    except ValidationError as error:
        # Each value was accepted by itself, so what is left are values that do not go together.
        _refuse([_joint_problem(fault, tree) for fault in error.errors(include_url=False)], reference)
    config.provenance.update({key: entry.origin for key, entry in leaves(tree)})
    return config


def _given(model: type[Section], tree: dict[str, Entry]) -> dict[str, Any]:
    """The plain values of a tree; a section that is null is absent."""
    values: dict[str, Any] = {}
    for name, entry in tree.items():
        inner = section_class(model, name)
        if inner is None:
            values[name] = entry.plain()
        elif entry.value is not None:
            values[name] = _given(inner, entry.value)
    return values


def _joint_problem(fault: Any, tree: dict[str, Entry]) -> Problem:
    key = ".".join(str(part) for part in fault["loc"])
    given = [f"{name} ({entry.origin})" for name, entry in leaves(tree) if name.startswith(key)]
    message = str(fault["msg"]).replace("Value error, ", "")
    return Problem(key or "config", "values that go together", "; ".join(given), message, "change one of them")


def _refuse(problems: list[Problem], reference: Optional[str]) -> None:
    found = list(dict.fromkeys(problems))
    count = f"{len(found)} problem{'s' if len(found) > 1 else ''}"
    raise ConfigError(f"config{f' {reference}' if reference else ''} cannot be used: {count}", found)
