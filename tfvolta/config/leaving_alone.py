"""Overrides that take a setting back, whoever gave it: also one that came from a config that another extends."""

from __future__ import annotations

from typing import Any, Iterator

from tfvolta.config.scalars import write_flow


def left_alone(config: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Overrides that ask for less, the narrowest first, each with the config that it makes.

    Args:
        config: A ``Config``.
        key: Dotted, such as ``xla.jit``; the sections around it follow, as ``xla=null``.

    Raises:
        AttributeError: The schema has no such key.
    """
    config.get(key)
    path = key.split(".")
    for length in range(len(path), 0, -1):
        part = path[:length]
        default = _default(config, part)
        if default is None or default == []:
            yield f"{'.'.join(part)}={write_flow(default)}", _with(config, part, default)


def _default(section: Any, path: list[str]) -> Any:
    """The default of a key; something that is no empty value where a section around it is absent already."""
    for part in path[:-1]:
        section = getattr(section, part)
        if section is None:
            return False
    return type(section).model_fields[path[-1]].get_default(call_default_factory=True)


def _with(section: Any, path: list[str], value: Any) -> Any:
    own = value if len(path) == 1 else _with(getattr(section, path[0]), path[1:], value)
    return section.model_copy(update={path[0]: own})
