"""What a key of a stack file is: how its value is checked, how JSON Schema says it, its default, its meaning.

A value's check is a schema of pydantic-core, written out as the plain data that it is. pydantic's own classes, which
would make the same data, cost ``validate`` 150 ms of imports and class building (docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError

from mcpiac.stack.grammar import Bad

Json = dict[str, Any]
Core = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A kind of value: its check, and its JSON Schema."""

    core: Core
    json: Json


@dataclass(frozen=True, slots=True)
class Key:
    """``default`` as the check gives it; ``written``: the default as it is written, where that differs."""

    value: Value
    about: str
    default: Any = None
    required: bool = False
    written: Any = None


@dataclass(frozen=True, slots=True)
class Part:
    """A mapping whose keys are all known. ``words``: what messages call it."""

    name: str
    words: str
    about: str
    keys: dict[str, Key]

    def empty(self) -> dict[str, Any]:
        """The mapping with every key at its default."""
        return {name: key.default for name, key in self.keys.items()}


def told(function: Callable[[Any], Any]) -> Core:
    """A grammar's function as a check: its ``Bad`` travels in the error's context."""

    def validate(value: Any) -> Any:
        try:
            return function(value)
        except Bad as bad:
            raise PydanticCustomError("bad", "refused", {"bad": bad}) from None

    return {"type": "no-info", "function": validate}


def text(function: Callable[[str], Any] | None = None, **json: Any) -> Value:
    """A text, with the grammar that it follows."""
    core: Core = {"type": "str", "strict": True}
    if function is not None:
        core = {"type": "function-after", "function": told(function), "schema": core}
    return Value(core, {"type": "string", **json})


def read(function: Callable[[Any], Any], json: Json) -> Value:
    """A value of any type that one function reads."""
    return Value({"type": "function-plain", "function": told(function)}, json)


def whole(least: int, most: int | None = None) -> Value:
    """A whole number between two others."""
    core: Core = {"type": "int", "strict": True, "ge": least}
    json: Json = {"type": "integer", "minimum": least}
    return Value({**core, "le": most}, {**json, "maximum": most}) if most is not None else Value(core, json)


def choice(*words: str) -> Value:
    """One of some words."""
    return Value({"type": "literal", "expected": list(words)}, {"enum": list(words)})


def listed(item: Value, least: int = 0) -> Value:
    """A list."""
    core: Core = {"type": "list", "strict": True, "items_schema": item.core}
    json: Json = {"type": "array", "items": item.json}
    return Value({**core, "min_length": least}, {**json, "minItems": least}) if least else Value(core, json)


def mapped(name: Value, value: Value) -> Value:
    """A mapping with free names; an entry that is null is absent."""
    core: Core = {"type": "dict", "strict": True, "keys_schema": name.core, "values_schema": value.core}
    names = {key: held for key, held in name.json.items() if key != "type"}
    json: Json = {"type": "object", "additionalProperties": nullable(value.json)}
    return Value(core, {**json, "propertyNames": names} if names else json)


def part(of: Part) -> Value:
    """A mapping with known keys."""
    fields = {}
    for name, key in of.keys.items():
        core = key.value.core if key.required else {"type": "default", "schema": key.value.core, **_default(key)}
        fields[name] = {"type": "typed-dict-field", "schema": core, "required": key.required}
    return Value(
        {"type": "typed-dict", "fields": fields, "extra_behavior": "forbid", "strict": True},
        {"$ref": f"#/$defs/{of.name}"},
    )


def _default(key: Key) -> Core:
    """A mapping or list is copied here, one level deep: pydantic-core would copy it to the ground each time."""
    copy = getattr(key.default, "copy", None)
    return {"default": key.default} if copy is None else {"default_factory": copy}


def definition(of: Part) -> Json:
    """A part's own JSON Schema."""
    required = [name for name, key in of.keys.items() if key.required]
    made: Json = {"type": "object", "description": of.about, "additionalProperties": False}
    made["properties"] = {name: _property(key) for name, key in of.keys.items()}
    return {**made, "required": required} if required else made


def nullable(json: Json) -> Json:
    """The same, or null: absent and null are the same."""
    if isinstance(json.get("type"), str):
        return {**json, "type": [json["type"], "null"]}
    if "enum" in json:
        return {**json, "enum": [*json["enum"], None]}
    return {"anyOf": [*json.get("anyOf", [json]), {"type": "null"}]}


def _property(key: Key) -> Json:
    if key.required:
        return {"description": key.about, **key.value.json}
    made = {"description": key.about, **nullable(key.value.json)}
    default = key.default if key.written is None else key.written
    return {**made, "default": default} if default is not None else made


TRUTH = Value({"type": "bool", "strict": True}, {"type": "boolean"})
