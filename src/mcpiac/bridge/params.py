"""The `Mcp-Param-*` headers of 2026-07-28: a tool may name arguments that clients repeat as headers.

Which ones is learnt from the `tools/list` answers that pass by. A header that disagrees with its
argument is refused; of a tool that no client has listed nothing is known, and nothing is refused.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .gate import HEADER_MISMATCH, Head, Refusal, plain_header
from .jsonscan import Message

_ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_INTEGER = re.compile(r"(-?[0-9]+)(\.0*)?\Z")
_TYPES = frozenset(("string", "integer", "boolean"))
_TOOLS = 10_000

Annotated = tuple[tuple[str, ...], str, str]  # path of the property, header token, type


class ParamHeaders:
    def __init__(self) -> None:
        self._tools: dict[str, tuple[Annotated, ...]] = {}

    def learn(self, answer: str) -> None:
        """Takes note of an answer to `tools/list`."""
        if _ANNOTATION not in answer and not self._tools:
            return
        try:
            tools = json.loads(answer)["result"]["tools"]
            for tool in tools:
                found = _annotated(tool.get("inputSchema"))
                if found and len(self._tools) < _TOOLS:
                    self._tools[tool["name"]] = found
                else:
                    self._tools.pop(tool["name"], None)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return

    def refuse(self, head: Head, message: Message) -> Refusal | None:
        """Why a `tools/call` contradicts its headers."""
        if not self._tools or message.method != "tools/call":
            return None
        params = message.params()
        annotated = self._tools.get(message.string_at(params.get("name")) or "")
        if not annotated:
            return None
        raw = message.slice(params.get("arguments"))
        try:
            arguments = json.loads(raw) if raw else {}
        except (ValueError, RecursionError):
            return None
        for path, token, kind in annotated:
            why = _contradiction(head, "mcp-param-" + token.lower(), _at(arguments, path), kind)
            if why:
                text = f"Mcp-Param-{token} header {why} (argument {'.'.join(path)})"
                return Refusal(400, HEADER_MISMATCH, text)
        return None


def _contradiction(head: Head, name: str, value: Any, kind: str) -> str | None:
    header = head.headers.get(name)
    if name in head.repeated:
        return "appears more than once"
    if value is None or not isinstance(value, (bool, str, int, float)):
        return None if header is None else "is there, but its argument is not"
    if header is None:
        return "is missing, but its argument is there"
    plain = plain_header(header)
    if plain is None:
        return "is malformed"
    if isinstance(value, bool):
        return None if plain == ("true" if value else "false") else "does not match"
    number = _INTEGER.match(plain)
    if kind == "integer" and number and len(plain) < 4000 and value == int(number.group(1)):
        return None
    return None if plain == str(value) else "does not match"


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(key)
    return arguments


def _annotated(schema: Any) -> tuple[Annotated, ...]:
    """The annotated properties; none at all when an annotation is invalid: clients then send none."""
    if _ANNOTATION not in json.dumps(schema):
        return ()
    found: list[Annotated] = []
    seen: set[str] = set()
    todo: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while todo:
        path, node = todo.pop()
        if not isinstance(node, dict):
            continue
        if path and _ANNOTATION in node:
            token, kind = node[_ANNOTATION], node.get("type")
            if not isinstance(token, str) or not isinstance(kind, str):
                return ()
            if kind not in _TYPES or not _TOKEN.match(token) or token.lower() in seen:
                return ()
            seen.add(token.lower())
            found.append((path, token, kind))
        properties = node.get("properties")
        if isinstance(properties, dict):
            todo += [((*path, key), value) for key, value in properties.items()]
    return tuple(found)
