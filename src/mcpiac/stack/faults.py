"""pydantic's errors become findings in our own words, with the nearest valid key or value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from mcpiac.stack import looks
from mcpiac.stack.compose import Map
from mcpiac.stack.finding import Finding, Path
from mcpiac.stack.keys import Part
from mcpiac.stack.looks import shown
from mcpiac.stack.schema import DEFAULTS, FILE, INNER, SECRET, SERVER, STACK

Written = Callable[[Path], str]

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
}
_SWITCHES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_EXAMPLES = {
    "bridge": "{name: supergateway}",
    "files": "{/home/user/notes.txt: {content: text}}",
    "secrets": "{NAME: env:NAME}",
    "env": "{NAME: value}",
    "labels": "{name: value}",
    "command": "[program, argument]",
    "args": "[first, second]",
    "allow_plain": "[NAME]",
    "ignore": "[args]",
    "hosts": "[example.com]",
    "lifecycle": "{prevent_destroy: true}",
    "timeouts": "{setup: 10m}",
    "build": "{scripts: true}",
    "defaults": "{idle: 15}",
    "servers": "{name: {package: npm:NAME, version: 1.2.3}}",
}


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word that this one was probably meant to be."""
    from difflib import get_close_matches

    found = get_close_matches(word.lower().replace("-", "_"), list(valid), n=1, cutoff=0.6)
    return found[0] if found else None


def translate(error: ErrorDetails, written: Written) -> Finding:
    """One error of a ``StackFile`` validation. ``written``: a path's text as it stands in the file, '' if secret."""
    path: Path = error["loc"]
    kind = error["type"]
    if kind == "bad":
        bad = error["ctx"]["bad"]
        on_key = path[-1] == "[key]"
        where = path[:-1] if on_key else path
        return Finding(
            bad.code, bad.summary, where, _named(bad.hint, where), bad.detail, on="key" if on_key else "value"
        )
    if kind == "extra_forbidden":
        return _unknown(path)
    if kind == "missing":
        return _missing(path)
    if kind in _TYPES:
        return _wrong_type(path, kind, error["input"], written)
    if kind == "literal_error":
        return _no_choice(path, error)
    if kind in ("greater_than_equal", "less_than_equal"):
        return _range(path)
    if kind == "too_short":
        return Finding("empty-list", f"`{path[-1]}` is an empty list", path, "name at least the program")
    return Finding("bad-value", f"this is no value of `{_name(path)}`: {error['msg']}", path)


def _named(hint: str, path: Path) -> str:
    """``env:NAME`` with the secret's own name, where it has a usable one."""
    name = str(path[3]) if len(path) > 3 and path[2] == "secrets" else ""
    return hint.replace("NAME", name) if name and looks.name_shown(name) else hint


def part_at(path: Path) -> Part:
    """Which mapping a path leads to."""
    if not path:
        return STACK
    rest = path[2:] if path[0] == "servers" else path[1:]
    if len(rest) == 2 and rest[0] == "files":
        return FILE
    if len(rest) == 2 and rest[0] == "secrets":
        return SECRET
    if rest:
        return INNER[str(rest[0])]
    return SERVER if path[0] == "servers" else DEFAULTS


def _unknown(path: Path) -> Finding:
    part = part_at(path[:-1])
    key = str(path[-1])
    quoted = f"`{shown(key)}`"
    if part is DEFAULTS and key in ("package", "version", "secrets"):
        summary = f"{quoted} cannot stand in `defaults`"
        return Finding("not-in-defaults", summary, path, "write it for each server", on="key")
    valid = list(part.keys)
    near = nearest(key, valid)
    hint = detail = ""
    if near:
        hint = f"did you mean `{near}`?"
    elif part is STACK and key in SERVER.keys:
        hint = "it belongs to a server, or to `defaults`"
    elif len(path) > 2 and key in SERVER.keys:
        hint = "it belongs to the server itself, two columns to the left"
    else:
        from textwrap import fill

        detail = fill(f"The keys are: {', '.join(valid)}.", 78)
    return Finding("unknown-key", f"{quoted} is not a key of {part.words}", path, hint, detail, on="key")


def _missing(path: Path) -> Finding:
    key = str(path[-1])
    hints = {
        "stack": "write for example: stack: demo",
        "provider": "write: provider: local (this machine) or provider: sandboxer",
        "from": "write: {from: env:NAME, version: 2}",
    }
    return Finding(
        "missing-key",
        f"{part_at(path[:-1]).words} needs `{key}`",
        path[:-1],
        _named(hints.get(key, ""), path),
        on="key",
    )


def _wrong_type(path: Path, kind: str, value: Any, written: Written) -> Finding:
    on_key = path[-1] == "[key]"
    path = path[:-1] if on_key else path
    name, wanted = _name(path), _TYPES[kind]
    said = f"an item of `{name}`" if isinstance(path[-1], int) else f"`{name}`"
    inner = path[2:] if path[0] == "servers" else path[1:]
    if inner[:1] == ("secrets",):
        forms = {1: "write: {NAME: env:NAME}", 2: "write: env:NAME"}
        hint = "write it without quotes" if wanted == "a whole number" else forms.get(len(inner), "write: env:NAME")
        return Finding("wrong-type", f"{said} must be {wanted}", path, _named(hint, path))
    if wanted == "text" and isinstance(value, (int, float)):
        return _not_text(path, name, value, written(path))
    if wanted == "true or false" and isinstance(value, str) and value.lower() in _SWITCHES:
        hint = f"write: {_SWITCHES[value.lower()]}"
        return Finding("wrong-type", f"`{name}` is true or false; in YAML 1.2 `{value}` is text", path, hint)
    hint = f"write: {_EXAMPLES[name]}" if name in _EXAMPLES and path[-1] == name else ""
    if path[0] == "servers" and len(path) == 2:
        hint = "write: {package: npm:NAME, version: 1.2.3}"
    if len(inner) == 2 and inner[0] == "files":
        hint = "write: {content: text}, {from: ./file} or {secret: NAME}"
    if wanted == "a whole number" and isinstance(value, str) and value.isdecimal():
        hint = "write it without quotes"
    return Finding("wrong-type", f"{said} must be {wanted}; this is {_kind(value)}", path, hint)


def _not_text(path: Path, name: str, value: float | bool, written: str) -> Finding:
    """Text that YAML read as a number or a switch."""
    code = "version-not-text" if name == "version" else "not-text"
    what = "true or false" if isinstance(value, bool) else "a number"
    spelled = str(value).lower() if isinstance(value, bool) else str(value)
    lost = f", and would become {spelled}" if written and spelled != written else "; this must be text"
    hint = f'write it in quotes: "{written}"' if written else "write it in quotes"
    return Finding(code, f"{written or 'this'} is {what} in YAML{lost}", path, hint)


def _no_choice(path: Path, error: ErrorDetails) -> Finding:
    expected = str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
    choices = [c.strip() for c in expected.split(",")]
    value = error["input"]
    near = nearest(value, choices) if isinstance(value, str) else None
    hint = f"did you mean `{near}`?" if near else f"one of: {', '.join(choices)}"
    quoted = f"`{shown(value)}`" if isinstance(value, (str, int, float)) else "this"
    return Finding("bad-value", f"{quoted} is no value of `{_name(path)}`", path, hint)


def _range(path: Path) -> Finding:
    name = _name(path)
    if name == "port":
        return Finding("out-of-range", "a port lies between 1024 and 65535", path, "write: 8000, or leave it out")
    return Finding("out-of-range", f"`{name}` is 0 or more", path)


def _name(path: Path) -> str:
    """The key that a message calls a path by: list items by their list."""
    names: Sequence[str] = [str(step) for step in path if isinstance(step, str)]
    return shown(names[-1]) if names else "the file"


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a mapping" if isinstance(value, Map) else "a list"
