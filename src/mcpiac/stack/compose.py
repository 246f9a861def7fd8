"""YAML 1.2 text becomes a tree of plain values that remember where they stand.

The events come from ruamel.yaml's C parser (libyaml); the tree is our own, since none of the library's loaders keeps
positions beside plain values at that speed. What libyaml reads as YAML 1.1 (``NO``, ``on``, ``0644``) is resolved
here by the core schema of YAML 1.2.2, section 10.3. Aliases share their node, so an alias bomb costs nothing until it
is counted, and it is counted while composing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _ruamel_yaml import CParser  # type: ignore[import-not-found]
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from mcpiac.stack import syntax
from mcpiac.stack.finding import Finding, Spot
from mcpiac.stack.shield import Shield

DEEPEST = 50
"""Levels of nesting."""
MOST_ALIASED = 200_000
"""Nodes that a file may gain by its aliases."""
MERGE = "<<"
_STR = "tag:yaml.org,2002:str"
_TAG_WORDS = {
    "tag:yaml.org,2002:null": "null",
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:int": "int",
    "tag:yaml.org,2002:float": "float",
}

_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NUMBER_STARTS = frozenset("0123456789+-.")
_DECIMAL = re.compile(r"[-+]?[0-9]+\Z")
_OTHER_BASE = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_ODD_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_LONGEST_INTEGER = 18
"""Digits; nothing in a stack is larger, and Python refuses thousands of them."""

Event = Any
_BEGINNINGS = (MappingStartEvent, SequenceStartEvent)
_ENDS = (MappingEndEvent, SequenceEndEvent)


class Map(dict[str, Any]):
    """A mapping. ``at``: the events of each key and its value; ``start``: its own.

    ``refused``: entries that are no part of it (a key twice, a key that is no text), as key, value and their events:
    they are still text of the file.
    """

    __slots__ = ("at", "refused", "start")

    def __init__(self, start: Event, at: dict[str, tuple[Event, Event]] | None = None) -> None:
        self.start = start
        self.at = {} if at is None else at
        self.refused: tuple[tuple[str, Any, Event, Event], ...] = ()

    def emptied(self, at: dict[str, tuple[Event, Event]] | None = None) -> Map:
        """A new mapping that stands where this one does, still without entries."""
        made = Map(self.start, self.at if at is None else at)
        made.refused = self.refused
        return made


class Seq(list[Any]):
    """A sequence; ``at`` holds the event of each item, ``start`` its own."""

    __slots__ = ("at", "start")

    def __init__(self, start: Event) -> None:
        self.start = start
        self.at: list[Event] = []


@dataclass(slots=True)
class Composed:
    """``root`` is None where there is no tree; then ``fault`` says why, or the file is ``empty``.

    ``findings`` are faults beside which a tree could still be made.
    """

    root: Any = None
    empty: bool = False
    findings: list[Finding] = field(default_factory=list)
    fault: Finding | None = None


def number(text: str) -> Any:
    """A plain scalar that begins like a number: its value in the core schema, or the text itself."""
    if _DECIMAL.match(text):
        return int(text) if len(text) <= _LONGEST_INTEGER else float(text)
    if _OTHER_BASE.match(text):
        return int(text[2:], 8 if text[1] == "o" else 16) if len(text) <= _LONGEST_INTEGER else float("inf")
    if _FLOAT.match(text):
        return float(text)
    if _ODD_FLOAT.match(text):
        return float(text.replace(".", "").lower())
    return text


class _Stop(Exception):
    def __init__(self, finding: Finding) -> None:
        self.finding = finding


def spot(event: Event) -> Spot:
    """Where an event's own text stands; a block scalar's first line only."""
    start, end = event.start_mark, event.end_mark
    width = end.column - start.column if end.line == start.line else 1
    return Spot(start.line, start.column, max(1, width))


def compose(text: str) -> Composed:
    """The tree of one document, with what is wrong in the YAML itself. Never raises for bad input."""
    result = Composed()
    try:
        _Composer(text, result).run()
    except _Stop as stop:
        result.fault = stop.finding
        result.root = None
    except ReaderError:
        result.fault = syntax.control_character(text)
        result.root = None
    except MarkedYAMLError as fault:
        result.fault = syntax.syntax(text, fault)
        result.root = None
    return result


class _Composer:
    """One run over the events of a text."""

    def __init__(self, text: str, result: Composed) -> None:
        self.result = result
        shield = Shield.over(text)
        self.next = CParser(shield.text).get_event
        self.shield = shield
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.open_anchors: set[str] = set()
        self.nodes = 0
        self.aliased = 0

    def run(self) -> None:
        self.next()
        first = self.next()
        if not isinstance(first, DocumentStartEvent):
            self.result.empty = True
            return
        if first.version is not None and tuple(first.version) != (1, 2):
            where = Spot(first.start_mark.line, first.start_mark.column, 5)
            raise _Stop(Finding("yaml-version", "mcpiac reads YAML 1.2 only", where, hint="leave the %YAML line out"))
        event = self.next()
        self.result.root = self.node(event, 0)
        self.next()
        last = self.next()
        if isinstance(last, DocumentStartEvent):
            raise _Stop(
                Finding(
                    "several-documents",
                    "a second YAML document begins here; a stack file holds one",
                    Spot(last.start_mark.line, last.start_mark.column, 3),
                    hint="put it into a file of its own",
                )
            )
        self.result.empty = isinstance(event, ScalarEvent) and event.implicit[0] and event.value == ""

    def node(self, event: Event, depth: int) -> Any:
        kind = event.__class__
        self.nodes += 1
        if kind is ScalarEvent:
            self.shield.open(event)
            value = self.tagged(event)
            if event.anchor is not None:
                self.anchors[event.anchor] = (value, 1)
            return value
        if kind is AliasEvent:
            return self.alias(event)
        if depth >= DEEPEST:
            raise _Stop(Finding("too-deep", f"nested more than {DEEPEST} levels deep", spot(event)))
        anchor = event.anchor
        before = self.nodes + self.aliased
        if anchor is not None:
            self.anchors.pop(anchor, None)
            self.open_anchors.add(anchor)
        value = self.mapping(event, depth + 1) if kind is MappingStartEvent else self.sequence(event, depth + 1)
        if anchor is not None:
            self.open_anchors.discard(anchor)
            self.anchors[anchor] = (value, self.nodes + self.aliased - before + 1)
        return value

    def mapping(self, start: Event, depth: int) -> Map:
        """The one loop that most of a file goes through: plain scalars are read on the spot, the rest by ``node``."""
        if start.tag is not None and start.tag != "tag:yaml.org,2002:map":
            self.unknown_tag(start)
        made = Map(start)
        at = made.at
        merged: tuple[Any, Event] | None = None
        following, colon, question = self.next, self.shield.colon, self.shield.question
        while True:
            key_event = following()
            if key_event.__class__ is MappingEndEvent:
                break
            key: Any
            if key_event.__class__ is ScalarEvent and key_event.anchor is None and key_event.tag is None:
                key = key_event.value
                if colon in key or question in key:
                    key = self.shield.open(key_event)
                if key_event.implicit[0]:
                    key = plain(key)
            else:
                key = self.node(key_event, depth)
            event = following()
            value: Any
            if event.__class__ is ScalarEvent and event.anchor is None and event.tag is None:
                value = event.value
                if colon in value or question in value:
                    value = self.shield.open(event)
                if event.implicit[0]:
                    value = plain(value)
                self.nodes += 2
            else:
                value = self.node(event, depth)
            if key.__class__ is not str:
                self.result.findings.append(_bad_key(key_event, key))
                made.refused = (*made.refused, ("", value, key_event, event))
            elif key in at:
                self.result.findings.append(_twice(key_event, at[key][0]))
                made.refused = (*made.refused, (key, value, key_event, event))
            else:
                at[key] = (key_event, event)
                if key == MERGE and key_event.__class__ is ScalarEvent and key_event.implicit[0]:
                    merged = (value, event)
                else:
                    made[key] = value
        if merged is not None:
            self.merge(made, *merged)
        return made

    def sequence(self, start: Event, depth: int) -> Seq:
        if start.tag is not None and start.tag != "tag:yaml.org,2002:seq":
            self.unknown_tag(start)
        made = Seq(start)
        while True:
            event = self.next()
            if event.__class__ is SequenceEndEvent:
                return made
            made.append(self.node(event, depth))
            made.at.append(event)

    def alias(self, event: Event) -> Any:
        name = event.anchor
        if name in self.open_anchors:
            raise _Stop(Finding("recursive-alias", "this alias stands inside what it repeats", spot(event)))
        if name not in self.anchors:
            raise _Stop(
                Finding(
                    "unknown-anchor",
                    "this alias names no anchor above it",
                    spot(event),
                    hint="text that begins with * is written in quotes",
                )
            )
        value, size = self.anchors[name]
        self.aliased += size
        if self.aliased > MOST_ALIASED:
            raise _Stop(
                Finding(
                    "alias-bomb",
                    f"aliases repeat more than {MOST_ALIASED:,} nodes by here",
                    spot(event),
                    hint="write the servers out, or split the stack",
                )
            )
        return value

    def merge(self, into: Map, value: Any, event: Event) -> None:
        sources = value if value.__class__ is Seq else [value]
        for source in sources:
            if source.__class__ is not Map:
                summary = "a merge key takes a mapping or a list of mappings"
                self.result.findings.append(Finding("bad-merge", summary, spot(event), hint="write: <<: *anchor"))
                continue
            for key, held in source.items():
                if key not in into:
                    into[key] = held
                    into.at[key] = source.at[key]

    def tagged(self, event: Event) -> Any:
        tag = event.tag
        if tag is None:
            return plain(event.value) if event.implicit[0] else event.value
        if tag in (_STR, "!"):
            return event.value
        if tag in _TAG_WORDS:
            value = plain(event.value)
            if _word(value) == _TAG_WORDS[tag]:
                return value
            if _TAG_WORDS[tag] == "float" and value.__class__ is int:
                return float(value)
        self.unknown_tag(event)
        return event.value

    def unknown_tag(self, event: Event) -> None:
        where = Spot(event.start_mark.line, event.start_mark.column)
        summary = "this tag has no meaning in a stack, or its value does not fit it"
        self.result.findings.append(Finding("unknown-tag", summary, where, hint="leave the tag out"))


def plain(text: str) -> Any:
    """A plain (unquoted, untagged) scalar by the core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in _NUMBER_STARTS:
        return number(text)
    return text


def _word(value: Any) -> str:
    return {"NoneType": "null", "bool": "bool", "int": "int", "float": "float"}.get(type(value).__name__, "str")


def _bad_key(event: Event, key: Any) -> Finding:
    where = spot(event)
    if isinstance(key, (int, float, bool)) or key is None:
        what = {"null": "empty", "bool": "true or false"}.get(_word(key), "a number")
        return Finding("key-not-text", f"a key must be text; this one is {what}", where, hint="write it in quotes")
    return Finding("key-not-text", "a key must be text; this one is a list or a mapping", where)


def _twice(event: Event, first: Event) -> Finding:
    summary = "this key is there twice"
    detail = f"first on line {first.start_mark.line + 1}"
    return Finding("duplicate-key", summary, spot(event), hint="keep one of the two", detail=detail)


def first_scalar(text: str, wanted: str) -> str | None:
    """The text under a key of the top mapping, reading only as far as it. Raises ``YAMLError`` up to there."""
    shield = Shield.over(text)
    following = CParser(shield.text).get_event
    following()
    following()
    if not isinstance(following(), MappingStartEvent):
        return None
    while True:
        key = following()
        if key is None or isinstance(key, MappingEndEvent):
            return None
        _pass_over(key, following)
        value = following()
        if isinstance(key, ScalarEvent) and shield.open(key) == wanted:
            return shield.open(value) if isinstance(value, ScalarEvent) else None
        _pass_over(value, following)


def _pass_over(first: Event, following: Callable[[], Event]) -> None:
    """Read to the end of what an event begins."""
    depth = int(isinstance(first, _BEGINNINGS))
    while depth:
        event = following()
        depth += isinstance(event, _BEGINNINGS) - isinstance(event, _ENDS)
