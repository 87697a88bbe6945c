"""A config back as YAML or as a dict."""

from __future__ import annotations

from typing import Any, Mapping

from tfvolta.config.scalars import write_flow
from tfvolta.config.schema import Config
from tfvolta.config.section import Section


def config_to_dict(config: Config, given_only: bool = True) -> dict[str, Any]:
    """The config as JSON values.

    Args:
        config: What to convert.
        given_only: Only what somebody gave, without the defaults; what ``load_config`` needs to make the same again.
    """
    return config.model_dump(mode="json", exclude_unset=given_only)


def dump_config(config: Config) -> str:
    """The config as YAML, each given value with its origin in a comment; ``load_config`` reads it back."""
    lines = _lines(config, config.provenance, "", "")
    return "\n".join(lines) + "\n" if lines else "# nothing was given: every key has its default\n"


def _lines(section: Section, provenance: Mapping[str, Any], prefix: str, indent: str) -> list[str]:
    lines: list[str] = []
    for name in type(section).model_fields:
        if name not in section.model_fields_set:
            continue
        value = getattr(section, name)
        origin = provenance.get(prefix + name)
        comment = f"  # {_one_line(str(origin))}" if origin is not None else ""
        inner = _lines(value, provenance, f"{prefix}{name}.", f"{indent}  ") if isinstance(value, Section) else []
        if inner:
            lines += [f"{indent}{name}:", *inner]
        else:
            lines.append(f"{indent}{name}: {'{}' if isinstance(value, Section) else write_flow(value)}{comment}")
    return lines


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
