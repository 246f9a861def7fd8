"""Finds what the bridge must know in a JSON-RPC message, by position, and re-encodes nothing.

A message that is only relayed keeps its bytes: big numbers, unknown fields, key order, escapes.
Where one value must change (an id, a progress token) only its own characters are replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Union

IdKey = Union[int, float, str, tuple[str, str]]  # noqa: UP007 - evaluated, and 3.9 has no |
Span = tuple[int, int]

_skip_blank = re.compile(r"[ \t\n\r]*").match
_BIG = 1 << 20
_LONGEST_NUMBER = 4000  # digits; CPython refuses to convert more than 4300
_TOP = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))


class NotJSON(ValueError):
    """The text is not one JSON value (NaN and Infinity count as not JSON)."""


def _no_constant(name: str) -> Any:
    raise NotJSON(name + " is not JSON")


# Numbers stay text: exact, and no limit on digits.
_small = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]
# For large texts: checks everything and keeps no object.
_large = json.JSONDecoder(  # type: ignore[attr-defined]
    parse_int=str, parse_float=str, parse_constant=_no_constant, object_pairs_hook=lambda pairs: None
).scan_once


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends. Numbers come as text."""
    scan = _large if len(text) > _BIG else _small
    try:
        value, end = scan(text, start)
    except StopIteration:
        raise NotJSON(f"no value at character {start}") from None
    except RecursionError:
        raise NotJSON("nested too deeply") from None
    except NotJSON:
        raise
    except ValueError as exc:
        raise NotJSON(str(exc)) from None
    return value, end


def after_blank(text: str, start: int) -> int:
    return _skip_blank(text, start).end()  # type: ignore[union-attr]


def members(text: str, start: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Each member of the object at `start`: (key, key start, value start, value end, member end).

    The last thing yielded is ("", end, end, end, end) with the object's end.
    Raises NotJSON when the text is no object.
    """
    if text[start : start + 1] != "{":
        raise NotJSON("not an object")
    at = after_blank(text, start + 1)
    if text[at : at + 1] == "}":
        yield "", at + 1, at + 1, at + 1, at + 1
        return
    while True:
        if text[at : at + 1] != '"':
            raise NotJSON(f"expected a name at character {at}")
        key_start = at
        try:
            key, at = scanstring(text, at + 1, True)
        except ValueError as exc:
            raise NotJSON(str(exc)) from None
        at = after_blank(text, at)
        if text[at : at + 1] != ":":
            raise NotJSON(f"expected ':' at character {at}")
        value_start = after_blank(text, at + 1)
        _, value_end = value_at(text, value_start)
        at = after_blank(text, value_end)
        mark = text[at : at + 1]
        yield key, key_start, value_start, value_end, at
        if mark == "}":
            yield "", at + 1, at + 1, at + 1, at + 1
            return
        if mark != ",":
            raise NotJSON(f"expected ',' or '}}' at character {at}")
        at = after_blank(text, at + 1)


def elements(text: str, start: int) -> tuple[list[Span], int]:
    """The spans of the elements of the array at `start`, and where the array ends."""
    spans: list[Span] = []
    at = after_blank(text, start + 1)
    if text[at : at + 1] == "]":
        return spans, at + 1
    while True:
        _, end = value_at(text, at)
        spans.append((at, end))
        at = after_blank(text, end)
        mark = text[at : at + 1]
        if mark == "]":
            return spans, at + 1
        if mark != ",":
            raise NotJSON(f"expected ',' or ']' at character {at}")
        at = after_blank(text, at + 1)


def id_key(raw: str) -> IdKey | None:
    """What two spellings of one id share: 1, 1.0 and 1e0 are one; "1" is another. None: not an id."""
    if raw[:1] == '"':
        key: str = scanstring(raw, 1, True)[0]
        return key
    if raw[:1] not in "-0123456789":
        return None
    if len(raw) > _LONGEST_NUMBER:
        return ("number", raw)
    try:
        return int(raw)
    except ValueError:
        number = float(raw)
        return int(number) if number.is_integer() else number


class Message:
    """One JSON object, looked at as JSON-RPC: where its parts stand in `text`."""

    __slots__ = ("_meta_spans", "_params", "duplicate", "end", "kind", "method", "spans", "start", "text")

    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        self.start = start
        self.spans: dict[str, Span] = {}
        self.duplicate = False
        self.end = start
        spans = self.spans
        for key, _, value_start, value_end, _ in members(text, start):
            if key in _TOP:
                if key in spans:
                    self.duplicate = True
                spans[key] = (value_start, value_end)
            self.end = value_end
        self.method: str | None = None
        if "method" in spans:
            at = spans["method"][0]
            if text[at] == '"':
                self.method = scanstring(text, at + 1, True)[0]
        self.kind = self._kind()
        self._params: dict[str, Span] | None = None
        self._meta_spans: dict[str, Span] | None = None

    def _kind(self) -> str:
        """request, notification, answer, or other."""
        raw = self.raw_id
        if "method" in self.spans:
            if self.method is None:
                return "other"
            if raw is None:
                return "notification"
            return "request" if raw[0] in '"-0123456789' else "other"
        if "result" in self.spans or "error" in self.spans:
            return "answer"
        return "other"

    def raw(self, part: str) -> str | None:
        span = self.spans.get(part)
        return None if span is None else self.text[span[0] : span[1]]

    @property
    def raw_id(self) -> str | None:
        return self.raw("id")

    @property
    def key(self) -> IdKey | None:
        raw = self.raw_id
        return None if raw is None else id_key(raw)

    @property
    def whole(self) -> str:
        """The message as it was written, from `{` to `}`."""
        return self.text[self.start : self.end]

    @property
    def is_error(self) -> bool:
        """An answer that is an error (a result beside `"error": null` is none)."""
        error = self.raw("error")
        return error is not None and error != "null"

    def params(self) -> dict[str, Span]:
        """Spans of the members of params ({} when params is absent or no object)."""
        if self._params is None:
            self._params = self.object_at(self.spans.get("params"))
        return self._params

    def meta(self) -> dict[str, Span]:
        """Spans of the members of params._meta."""
        if self._meta_spans is None:
            self._meta_spans = self.object_at(self.params().get("_meta"))
        return self._meta_spans

    def object_at(self, span: Span | None) -> dict[str, Span]:
        if span is None or self.text[span[0]] != "{":
            return {}
        return {key: (start, end) for key, _, start, end, _ in members(self.text, span[0]) if end != start}

    def string_at(self, span: Span | None) -> str | None:
        """The string that stands at `span`; None for anything else."""
        if span is None or self.text[span[0]] != '"':
            return None
        found: str = scanstring(self.text, span[0] + 1, True)[0]
        return found

    def slice(self, span: Span | None) -> str | None:
        return None if span is None else self.text[span[0] : span[1]]

    def replaced(self, changes: list[tuple[Span, str]]) -> str:
        """The message with the characters of each span replaced."""
        parts: list[str] = []
        at = self.start
        for (start, end), new in sorted(changes):
            parts.append(self.text[at:start])
            parts.append(new)
            at = end
        parts.append(self.text[at : self.end])
        return "".join(parts)


def parse(text: str) -> Message | list[Message]:
    """One message, or the messages of a batch. Raises NotJSON."""
    start = after_blank(text, 0)
    if text[start : start + 1] == "[":
        spans, end = elements(text, start)
        found: Message | list[Message] = [Message(text, span[0]) for span in spans]
    else:
        found = Message(text, start)
        end = found.end
    if after_blank(text, end) != len(text):
        raise NotJSON(f"text after the JSON value, at character {end}")
    return found
