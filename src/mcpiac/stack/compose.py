"""YAML 1.2 text becomes a tree of plain values that remember where they stand.

The events come from ruamel.yaml's C parser (libyaml); the tree is our own, since none of the library's loaders keeps
positions beside plain values at that speed. What libyaml reads as YAML 1.1 (``NO``, ``on``, ``0644``) is resolved
here by the core schema of YAML 1.2.2, section 10.3. Aliases share their node, so an alias bomb costs nothing until it
is counted, and it is counted while composing.
"""

from __future__ import annotations

import re
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

Mark = Any
Event = Any


class Map(dict[str, Any]):
    """A mapping; ``at`` holds the events of each key and its value, ``start`` its own."""

    __slots__ = ("at", "start")

    def __init__(self, start: Event) -> None:
        self.start = start
        self.at: dict[str, tuple[Event, Event]] = {}


class Seq(list[Any]):
    """A sequence; ``at`` holds the event of each item, ``start`` its own."""

    __slots__ = ("at", "start")

    def __init__(self, start: Event) -> None:
        self.start = start
        self.at: list[Event] = []


@dataclass(slots=True)
class Composed:
    """``root`` is None where there is no tree. ``whole``: the text was read to its end.

    ``scalars`` are the scalar events in order, with the key that each stands under: for masking.
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
    except ReaderError as fault:
        result.fault = _unacceptable(text, fault)
        result.root = None
    except MarkedYAMLError as fault:
        result.fault = _syntax(text, fault)
        result.root = None
    return result


class _Composer:
    """One run over the events of a text."""

    def __init__(self, text: str, result: Composed) -> None:
        self.result = result
        shield = Shield.over(text)
        self.next = CParser(shield.text).get_event
        self.shielded = shield.pattern
        self.open = shield.open
        self.anchors: dict[str, tuple[Any, Event, int]] = {}
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
            if self.shielded is not None and self.shielded(event.value):
                event.value = self.open(event.value)
            if event.tag is None and event.anchor is None:
                if event.implicit[0]:
                    return plain(event.value)
                return event.value
            value = self.tagged(event)
            if event.anchor is not None:
                self.anchors[event.anchor] = (value, event, 1)
            return value
        if kind is AliasEvent:
            return self.alias(event)
        if depth >= DEEPEST:
            raise _Stop(Finding("too-deep", f"nested more than {DEEPEST} levels deep", spot(event)))
        anchor = event.anchor
        if anchor is not None:
            before = self.nodes + self.aliased
            self.anchors.pop(anchor, None)
            self.open_anchors.add(anchor)
        value = self.mapping(event, depth + 1) if kind is MappingStartEvent else self.sequence(event, depth + 1)
        if anchor is not None:
            self.open_anchors.discard(anchor)
            self.anchors[anchor] = (value, event, self.nodes + self.aliased - before + 1)
        return value

    def mapping(self, start: Event, depth: int) -> Map:
        if start.tag is not None and start.tag != "tag:yaml.org,2002:map":
            self.unknown_tag(start)
        made = Map(start)
        at = made.at
        merges: list[tuple[Any, Event]] = []
        following = self.next
        while True:
            key_event = following()
            if key_event.__class__ is MappingEndEvent:
                break
            if key_event.__class__ is ScalarEvent and key_event.anchor is None and key_event.tag is None:
                if self.shielded is not None and self.shielded(key_event.value):
                    key_event.value = self.open(key_event.value)
                key: Any = key_event.value
                if key_event.implicit[0] and key.__class__ is str:
                    key = plain(key)
                self.nodes += 1
            else:
                key = self.node(key_event, depth)
            event = following()
            value = self.node(event, depth)
            if key == MERGE and key_event.implicit[0] and MERGE not in at:
                at[MERGE] = (key_event, event)
                merges.append((value, event))
            elif key.__class__ is not str:
                self.result.findings.append(_bad_key(key_event, key))
            elif key in at:
                self.result.findings.append(_twice(key_event, at[key][0]))
            else:
                made[key] = value
                at[key] = (key_event, event)
        if merges:
            self.merge(made, *merges[0])
        return made

    def sequence(self, start: Event, depth: int) -> Seq:
        if start.tag is not None and start.tag != "tag:yaml.org,2002:seq":
            self.unknown_tag(start)
        made = Seq(start)
        following = self.next
        while True:
            event = following()
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
        value, _, size = self.anchors[name]
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


def lines_of(text: str) -> list[str]:
    """The lines as libyaml counts them."""
    return re.split("\r\n|[\n\r\x85\u2028\u2029]", text)


def _syntax(text: str, fault: MarkedYAMLError) -> Finding:
    mark = fault.problem_mark or fault.context_mark
    line, column = mark.line, mark.column
    lines = lines_of(text)
    here = lines[line] if line < len(lines) else ""
    problem = fault.problem or "this is not YAML"
    if here[:column].strip(" ") == "" and here[column : column + 1] == "\t":
        return Finding("tab-indent", "a tab cannot indent in YAML", Spot(line, column), hint="use spaces")
    context = fault.context or ""
    opened = fault.context_mark
    if opened is not None and context.startswith("while parsing a flow"):
        bracket = "{" if "mapping" in context else "["
        close = "}" if bracket == "{" else "]"
        summary = f"`{bracket}` is not closed where it should be"
        hint = f"a comma or `{close}` is missing after it, by line {line + 1}"
        return Finding("yaml-syntax", summary, Spot(opened.line, opened.column), hint=hint)
    if opened is not None and "quoted scalar" in context and "end of stream" in problem:
        return Finding(
            "yaml-syntax", "this quote is never closed", Spot(opened.line, opened.column), hint="close the quote"
        )
    summary, hint = _SAID.get(problem, (problem, ""))
    return Finding("yaml-syntax", summary, Spot(line, column), hint=hint)


_SAID = {
    "mapping values are not allowed in this context": (
        "a `:` cannot stand here",
        "quote text that holds a colon and a space; put a nested key on a line of its own",
    ),
    "found character that cannot start any token": (
        "text cannot begin with this character",
        "write it in quotes",
    ),
    "could not find expected ':'": ("a key without its `:`", "write: key: value"),
    "did not find expected key": (
        "no key where one was expected",
        "look at the indent: keys of one mapping stand in one column",
    ),
    "did not find expected '-' indicator": (
        "no `-` where one was expected",
        "look at the indent: items of one list stand in one column",
    ),
    "found incompatible YAML document": ("mcpiac reads YAML 1.2 only", "leave the %YAML line out"),
    "found invalid Unicode character escape code": ("this escape is no character", ""),
    "found unknown escape character": ("this escape is not known in YAML", "use single quotes, or write \\\\"),
}


_UNACCEPTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _unacceptable(text: str, fault: ReaderError) -> Finding:
    found = _UNACCEPTABLE.search(text)
    before = lines_of(text[: found.start()]) if found else [""]
    where = Spot(len(before) - 1, len(before[-1]))
    summary = "a control character cannot stand in YAML"
    return Finding("control-character", summary, where, hint="remove it, or write it as an escape in double quotes")


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
        if isinstance(key, MappingEndEvent):
            return None
        value = following()
        if isinstance(key, ScalarEvent) and key.value == wanted:
            return shield.open(value.value) if isinstance(value, ScalarEvent) else None
        depth = isinstance(value, (MappingStartEvent, SequenceStartEvent)) + isinstance(
            key, (MappingStartEvent, SequenceStartEvent)
        )
        while depth:
            event = following()
            depth += isinstance(event, (MappingStartEvent, SequenceStartEvent))
            depth -= isinstance(event, (MappingEndEvent, SequenceEndEvent))
