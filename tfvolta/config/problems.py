"""Checks what was given against the schema: every fault at once, each with the line that mends it."""

from __future__ import annotations

from typing import Any, Optional, Union

from tfvolta.config.catalogue import Setting, keys_under, section_class, settings
from tfvolta.config.entry import Entry
from tfvolta.config.remedy import better_value
from tfvolta.config.scalars import write_flow, yaml_type
from tfvolta.config.schema import Config
from tfvolta.config.section import Section
from tfvolta.config.suggestion import Suggestion, suggest
from tfvolta.config.units import converted
from tfvolta.config.wording import expected, expected_item, received
from tfvolta.errors import Problem


def check(layer: Entry) -> list[Problem]:
    """All problems of one layer (a file, an override, the arguments); none if the schema accepts it as it stands."""
    return _section_problems(Config, "", layer)


def _section_problems(model: type[Section], prefix: str, entry: Entry) -> list[Problem]:
    problems: list[Problem] = []
    for name, given in entry.value.items():
        key = f"{prefix}.{name}" if prefix else name
        inner = section_class(model, name)
        if name not in model.model_fields:
            problems.append(_unknown_key(prefix, name, given))
        elif inner is None:
            problems += _value_problems(settings()[key], given)
        elif isinstance(given.value, dict):
            problems += _section_problems(inner, key, given)
        elif given.value is not None:
            problems.append(_not_a_section(key, inner, given))
    return problems


def _value_problems(setting: Setting, given: Entry) -> list[Problem]:
    value = given.plain()
    faults = setting.faults(value)
    if faults is None:
        return []
    better = better_value(setting, value)
    fix = _fix(setting, given, better)
    if not faults:
        why = _why(setting, value)
        return [Problem(given.where(setting.key), expected(setting), received(value), why, fix)]
    items = [(index, given.value[index]) for index in faults]
    return [
        Problem(item.where(f"{setting.key}[{index}]"), expected_item(setting), received(item.plain()), "", fix)
        for index, item in items
    ]


def _fix(setting: Setting, given: Entry, better: Any) -> str:
    if better is not None:
        line = _line(given, setting.key, better)
        misspelt = isinstance(given.value, str) and isinstance(better, str)
        return f"did you mean {better}? Write: {line}" if misspelt else line
    leave = "leave the key out" + (", or write null" if setting.optional and given.value is not None else "")
    return f"{_line(given, setting.key, setting.example)}, for example; or {leave}"


def _why(setting: Setting, value: Any) -> str:
    kinds = {kind.get("type") for kind in setting.alternatives}
    if isinstance(value, str):
        if setting.unit and converted(value, setting.unit) is not None:
            return f"the name gives the unit ({setting.unit}), the value is a bare number"
        if "boolean" in kinds and value.lower() in ("yes", "no", "on", "off", "y", "n"):
            return f"YAML 1.2 reads {value} as a string; its booleans are true and false"
        if kinds & {"boolean", "integer", "number"} and better_value(setting, value) is not None:
            return "quotes, underscores or commas make it a string, and nothing is converted silently"
    if isinstance(value, bool) and kinds & {"integer", "number"}:
        return "a boolean is not a number here"
    if isinstance(value, dict) and "array" in kinds:
        return "a list is given as a whole; its items have no keys of their own"
    if value is None:
        return "this key has no empty value; null alone means leave alone where a key allows it"
    if isinstance(value, float) and "integer" in kinds:
        return "nothing is rounded silently"
    return ""


def _unknown_key(prefix: str, name: str, given: Entry) -> Problem:
    key = f"{prefix}.{name}" if prefix else name
    known = f"{f'a key of {prefix}' if prefix else 'a section'}: {', '.join(keys_under(prefix))}"
    if key == "extends":
        fix = "write extends: at the top of the config file"
        return Problem(given.where(key), known, "extends", "only a file can extend others", fix)
    suggestion = suggest(prefix, name, given.plain())
    what = f"the unknown {'key' if prefix or not isinstance(given.value, dict) else 'section'} {name}"
    if suggestion is None:
        return Problem(given.where(key), known, what, "", f"remove {name}, or use one of the keys listed")
    return Problem(given.where(key), known, what, suggestion.why, _did_you_mean(suggestion, prefix, given))


def _did_you_mean(suggestion: Suggestion, prefix: str, given: Entry) -> str:
    question = f"did you mean {' or '.join(suggestion.keys)}?"
    target = suggestion.keys[0]
    setting = settings().get(target)
    value = suggestion.value
    if setting is not None and value is None:
        unit = f", in {setting.unit}" if setting.unit else ""
        return f"{question} For example: {_line(given, target, setting.example, prefix)}{unit}"
    return f"{question} Write: {_line(given, target, value, prefix)}"


def _not_a_section(key: str, model: type[Section], given: Entry) -> Problem:
    value = given.plain()
    names = list(model.model_fields)
    example = _section_example(key, model, value)
    return Problem(
        given.where(key),
        f"keys under {key}: {', '.join(names)}",
        received(value),
        f"{key} is a section, not {'a list of settings' if isinstance(value, list) else yaml_type(value)}",
        f"{_line(given, key, example)}; or leave {key} out",
    )


def _section_example(key: str, model: type[Section], value: Any) -> dict[str, Any]:
    """The section with one key: the first that takes the value given to the section itself, or a telling one."""
    found = [settings()[f"{key}.{name}"] for name in model.model_fields if f"{key}.{name}" in settings()]
    if not isinstance(value, (list, dict)):
        for setting in found:
            better = better_value(setting, value)
            if better is not None and _related(setting, value):
                return {setting.name: better}
    return {found[0].name: found[0].example}


def _related(setting: Setting, value: Any) -> bool:
    """Whether a bare value says more about this key than that its type fits."""
    first = next(iter(setting.model.model_fields)) == setting.name
    return first or isinstance(value, str)


def _line(given: Entry, key: str, value: Any, prefix: Optional[str] = None) -> str:
    """The setting as it is written where it was given: in a file, as an override, or as an argument.

    ``prefix`` is the section in which the reader's line stands; the line names whatever lies outside of it.
    """
    section, _, name = key.rpartition(".")
    if given.origin.kind == "override":
        return f"{key}={write_flow(value)}"
    if given.origin.kind == "argument":
        top, _, rest = key.partition(".")
        return f"{top}={_nested(rest, value)!r}"
    if prefix is None or section == prefix:
        return f"{name}: {write_flow(value)}"
    inside = key[len(prefix) + 1 :] if prefix and key.startswith(f"{prefix}.") else key
    top, _, rest = inside.partition(".")
    return f"{top}: {write_flow(_nested(rest, value))}"


def _nested(dotted: str, value: Any) -> Union[dict[str, Any], Any]:
    for part in reversed([part for part in dotted.split(".") if part]):
        value = {part: value}
    return value
