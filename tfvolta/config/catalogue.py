"""The schema seen as a flat table: every dotted key with what it accepts, read from the models themselves."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Optional

from pydantic import ValidationError

from tfvolta.config.schema import Config
from tfvolta.config.section import Section

_UNITS = {"_mb": "MiB", "_seconds": "seconds"}
_EXAMPLES = {"MiB": 1024, "seconds": 600}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One key that takes a value.

    Attributes:
        key: Dotted.
        model: The section that declares it.
        schema: Its JSON schema.
    """

    key: str
    model: type[Section]
    schema: dict[str, Any] = dataclasses.field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]

    @property
    def unit(self) -> str:
        """``MiB``, ``seconds`` or nothing, as the name says."""
        return unit_of(self.name)

    @property
    def alternatives(self) -> list[dict[str, Any]]:
        """JSON schemas of which a value has to match one."""
        return alternatives(self.schema)

    @property
    def optional(self) -> bool:
        """Whether null is accepted."""
        return any(kind.get("type") == "null" for kind in self.alternatives)

    @property
    def default(self) -> Any:
        """What holds when nobody gives the key."""
        return self.model.model_fields[self.name].get_default(call_default_factory=True)

    @property
    def example(self) -> Any:
        """A value that is accepted and says something."""
        if self.schema.get("examples"):
            return self.schema["examples"][0]
        if self.default is not None and self.default != []:
            return self.default
        kind = self.alternatives[0]
        if "enum" in kind or "const" in kind:
            return kind.get("const", kind.get("enum", [None])[0])
        candidates = (True, _EXAMPLES.get(self.unit, 1), "eth0", ["Softmax"], ["--xla_gpu_autotune_level=4"], [0])
        return next((value for value in candidates if self.accepts(value)), None)

    def accepts(self, value: Any) -> bool:
        """Whether the schema takes this value."""
        return self.faults(value) is None

    def faults(self, value: Any) -> Optional[list[int]]:
        """None for an accepted value; else the positions of the items that are wrong, none for the value as a whole."""
        try:
            self.model.model_validate({self.name: value})
        except ValidationError as error:
            places = [fault["loc"][1:] for fault in error.errors(include_url=False) if fault["loc"][:1] == (self.name,)]
            items = {part for place in places for part in place if isinstance(part, int)}
            return sorted(items) if isinstance(value, list) else []
        return None


def unit_of(name: str) -> str:
    """The unit that a key's name ends in, or nothing."""
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The members of ``anyOf``, or the schema itself."""
    members: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return members


def section_class(model: type[Section], name: str) -> Optional[type[Section]]:
    """The class of a section under a section, or None where the key takes a value or does not exist."""
    field = model.model_fields.get(name)
    if field is None:
        return None
    candidates = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((item for item in candidates if isinstance(item, type) and issubclass(item, Section)), None)


@functools.cache
def settings() -> dict[str, Setting]:
    """Every key that takes a value, by dotted name."""
    schema = Config.model_json_schema()
    return {setting.key: setting for setting in _walk(Config, "", schema, schema.get("$defs", {}))}


@functools.cache
def sections() -> dict[str, type[Section]]:
    """Every section, by dotted name, those inside others too."""
    found: dict[str, type[Section]] = {}
    waiting: list[tuple[str, type[Section]]] = [("", Config)]
    while waiting:
        prefix, model = waiting.pop(0)
        for name in model.model_fields:
            inner = section_class(model, name)
            if inner is not None:
                found[prefix + name] = inner
                waiting.append((f"{prefix}{name}.", inner))
    return found


def keys_under(prefix: str) -> list[str]:
    """Names that may stand in a section; those of the top for an empty prefix."""
    model: type[Section] = sections()[prefix] if prefix else Config
    return list(model.model_fields)


def _walk(model: type[Section], prefix: str, schema: dict[str, Any], definitions: dict[str, Any]) -> list[Setting]:
    found: list[Setting] = []
    for name in model.model_fields:
        inner = section_class(model, name)
        if inner is None:
            found.append(Setting(prefix + name, model, _resolved(schema["properties"][name], definitions)))
        else:
            found += _walk(inner, f"{prefix}{name}.", definitions[inner.__name__], definitions)
    return found


def _resolved(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references replaced by what they refer to."""
    if isinstance(schema, list):
        return [_resolved(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {key: _resolved(value, definitions) for key, value in schema.items()}
