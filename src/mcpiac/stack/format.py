"""``fmt``: one layout for every stack file; comments and quotes stay, and the meaning never changes."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import ScalarEvent

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.stack import source
from mcpiac.stack.compose import Composed, Map, Seq, compose
from mcpiac.stack.finding import Finding, Spot
from mcpiac.stack.place import Places
from mcpiac.stack.syntax import lines_of

_ROUNDS = 4
"""The layout settles in two; what has not settled by then is left alone."""


def format_file(path: Path, root: Path) -> tuple[str, str]:
    """A stack file's text as it is, and as it should be. Raises ``Diagnosed`` where it cannot be read or parsed."""
    file = source.shown(path, root)
    text = source.read_text(path, file)
    return text, format_text(text, file)


def format_text(text: str, file: str = "stack.yaml") -> str:
    """The text in the house layout: two columns a level, lists indented under their key, LF, one line end at the end.

    Raises ``Diagnosed`` for a text that is no YAML of ours. Formatting the result again changes nothing.
    """
    text = text.removeprefix("\ufeff")
    before = compose(text)
    if before.fault is not None or before.findings:
        findings = [before.fault] if before.fault else before.findings
        places = Places(file, text, before.root, stack="stack:" in text)
        raise Diagnosed(*(places.diagnostic(f) for f in findings))
    if before.empty:
        return _ended(text)
    made = _settled(text)
    after = compose(made)
    kept = after.fault is None and plain(after.root) == plain(before.root)
    if not kept or _comments(made, after) != _comments(text, before):
        places = Places(file, text, before.root, stack=False)
        summary = "this file cannot be laid out without losing some of it; it was left as it is"
        raise Diagnosed(places.diagnostic(Finding("not-formatted", summary, Spot(0, 0), "lay it out by hand")))
    return made


def _settled(text: str) -> str:
    """The layout that does not change any more; '' where there is none, or ruamel cannot read what we can."""
    made, last = text, ""
    try:
        for _ in range(_ROUNDS):
            made, last = _ended(_aligned(_round_trip(made))), made
            if made == last:
                return made
    except YAMLError:
        pass
    return ""


def plain(node: Any) -> Any:
    """A tree as plain values that know their types: 1 and 1.0 and true differ."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    return (type(node).__name__, repr(node))


def _round_trip(text: str) -> str:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.allow_duplicate_keys = False
    document = yaml.load(re.sub("\r\n?", "\n", text))
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _ended(text: str) -> str:
    """The text with LF line ends, and exactly one of them at its end."""
    body = re.sub("\r\n?", "\n", text).strip("\n")
    return body + "\n" if body else ""


def _aligned(text: str) -> str:
    """A comment on a line of its own stands in the column of the line before or after it.

    ruamel leaves it in the column that it had before the lines around it moved.
    """
    lines, bare = lines_of(text), _without_scalars(text, compose(text))
    indents = [len(line) - len(line.lstrip(" ")) for line in bare]
    after: list[int] = [0] * len(lines)
    following = 0
    for index in reversed(range(len(lines))):
        after[index] = following
        if bare[index].strip() and not bare[index].lstrip(" ").startswith("#"):
            following = indents[index]
    before = 0
    for index, line in enumerate(bare):
        if line.lstrip(" ").startswith("#"):
            if indents[index] not in (before, after[index]):
                lines[index] = " " * after[index] + lines[index].lstrip(" ")
        elif line.strip():
            before = indents[index]
    return "\n".join(lines)


def _comments(text: str, composed: Composed) -> Counter[str]:
    """Every comment of a text: what begins with # outside all scalars."""
    found = (re.search(r"(?:^|\s)#(.*)", line) for line in _without_scalars(text, composed))
    return Counter(match[1].strip() for match in found if match)


def _without_scalars(text: str, composed: Composed) -> list[str]:
    """The lines with an x for each character of a scalar."""
    lines = lines_of(text)
    for event in _scalars(composed.root):
        start, end = event.start_mark, event.end_mark
        for number in range(start.line, min(end.line + 1, len(lines))):
            line = lines[number]
            first = start.column if number == start.line else 0
            last = end.column if number == end.line else len(line)
            lines[number] = line[:first] + "x" * (last - first) + line[last:]
    return lines


def _scalars(node: Any) -> Iterator[Any]:
    if isinstance(node, Map):
        for key, (key_event, event) in node.at.items():
            yield from (e for e in (key_event, event) if isinstance(e, ScalarEvent))
            yield from _scalars(node.get(key))
    elif isinstance(node, Seq):
        for event, value in zip(node.at, node, strict=True):
            if isinstance(event, ScalarEvent):
                yield event
            yield from _scalars(value)
