"""A finding gets its line: where it stands, what the line says, and what of it must not be shown.

Never shown: what stands under ``secrets``, what looks like a secret or stands under a name that says so, comments,
and any text of a file that is no stack. Where something is cut out, the line ends there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mcpiac.model.diagnostic import Diagnostic, Excerpt, Origin
from mcpiac.stack import looks
from mcpiac.stack.compose import Map, Seq, spot
from mcpiac.stack.finding import Finding, Path, Spot
from mcpiac.stack.syntax import lines_of

_LONGEST = 100
_BEFORE = 40
"""A line longer than 100 characters is cut to the part around the caret, beginning at most 40 before it."""

_LONGEST_UNPARSED = 2000
"""A longer line of a text that is no YAML is not shown: what to mask in it is guessed by patterns."""

_SECRETS_KEY = re.compile(r"(?:.*[_-])?secrets?\Z", re.IGNORECASE)
_NEARLY_SECRETS = 0.75
"""How alike ``secrets`` a misspelled key must be, by difflib's ratio, to be taken for it."""
_SECRETS_WORD = re.compile(r"secret", re.IGNORECASE)
_KEY_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(['\"]?\s*[:=]\s*)(\S.*)\Z")


class Places:
    """The positions of one text. ``root`` None: there is no tree. ``stack``: whether the file is a stack."""

    def __init__(self, file: str, text: str, root: Any, *, stack: bool) -> None:
        self.file = file
        self.text = text
        self.root = root
        self.stack = stack
        self._lines: list[str] | None = None
        self._hidden: dict[int, list[tuple[int, int]]] | None = None
        self._ends: dict[int, int] = {}

    def diagnostic(self, finding: Finding, address: str | None = None) -> Diagnostic:
        """The finding with its origin and the masked line."""
        at = finding.at if isinstance(finding.at, Spot) else self.spot(finding.at, finding.on)
        excerpt = self.excerpt(at) if self.stack else None
        return Diagnostic(
            finding.severity,
            finding.code,
            finding.summary,
            detail=finding.detail,
            address=address,
            origin=Origin(self.file, at.line + 1, at.column + 1),
            excerpt=excerpt,
            hint=finding.hint,
        )

    def spot(self, path: Path, on: str) -> Spot:
        """Where a path's key or value stands; the nearest one above it that is there."""
        node: Any = self.root
        best = Spot(0, 0)
        for index, step in enumerate(path):
            if isinstance(node, Map) and step in node.at:
                key_event, event = node.at[str(step)]
                last = index == len(path) - 1
                best = spot(key_event) if (on == "key" or not last or _nothing(event)) else spot(event)
                node = node.get(str(step))
            elif isinstance(node, Seq) and isinstance(step, int) and step < len(node.at):
                best = spot(node.at[step])
                node = node[step]
            else:
                break
        return best

    def written(self, path: Path) -> str:
        """The text of a scalar as it stands in the file; '' where it must not be shown, or is no scalar."""
        inner = path[2:] if path[0] == "servers" else path
        if not self.stack or any(isinstance(step, str) and _speaks_of_secrets(step) for step in inner):
            return ""
        node: Any = self.root
        event: Any = None
        for step in path:
            if isinstance(node, Map) and step in node.at:
                event, node = node.at[str(step)][1], node.get(str(step))
            elif isinstance(node, Seq) and isinstance(step, int):
                event, node = node.at[step], node[step]
            else:
                return ""
        text = str(getattr(event, "value", ""))
        key = next((step for step in reversed(path) if isinstance(step, str)), "")
        return "" if looks.held_under(key, text) else text

    def excerpt(self, at: Spot) -> Excerpt | None:
        """The line at a spot, masked and cut to what is worth seeing."""
        if self._lines is None:
            self._lines = lines_of(self.text)
        if at.line >= len(self._lines):
            return None
        line = self._lines[at.line]
        if self.root is None and len(line) > _LONGEST_UNPARSED:
            return None
        if self.root is None:
            text, caret, width = self._unparsed(line, at)
        else:
            text, caret, width = self._masked(line, at)
        text = text.replace("\t", "→")
        if len(text) > _LONGEST:
            start = max(0, min(caret - _BEFORE, len(text) - _LONGEST))
            cut = text[start : start + _LONGEST]
            lead, tail = ("…" if start else ""), ("…" if start + _LONGEST < len(text) else "")
            text, caret = lead + cut + tail, caret - start + len(lead)
        width = max(1, min(width, len(text) - caret)) if caret < len(text) else 1
        return Excerpt(text.rstrip(), width, caret + 1 if caret != at.column else 0)

    def _masked(self, line: str, at: Spot) -> tuple[str, int, int]:
        if self._hidden is None:
            self._hidden = {}
            self._collect()
        end = self._ends.get(at.line, 0)
        comment = re.search(r"(?:^|\s)#", line[end:])
        if comment:
            line = line[: end + comment.start()].rstrip()
        caret, width = at.column, at.width
        text, done = "", 0
        for start, stop in sorted(self._hidden.get(at.line, ())):
            if start < done:
                done = max(done, stop)
                continue
            text += line[done:start] + looks.MASK
            if at.column > start:
                inside = at.column < stop
                caret = len(text) - len(looks.MASK) if inside else at.column - stop + len(text)
                width = len(looks.MASK) if inside else width
            elif at.column == start:
                caret, width = len(text) - len(looks.MASK), len(looks.MASK)
            done = stop
        return text + line[done:], caret, width

    def _unparsed(self, line: str, at: Spot) -> tuple[str, int, int]:
        """A line of a text without a tree: whatever could be a secret's value is cut with all that follows."""
        assert self._lines is not None
        comment = re.search(r"(?:^|\s)#", line)
        if comment:
            line = line[: comment.start()].rstrip()
        found = _KEY_VALUE.search(line)
        if _under_secrets(self._lines, at.line):
            first = re.search(r"[:=]\s*|-\s+", line)
            cut = first.end() if first else len(line) - len(line.lstrip())
            line = line[:cut] + (looks.MASK if line[cut:] else "")
        elif found and looks.held_under(found[1], found[3].strip("\"'")):
            line = line[: found.start(3)] + looks.MASK
        else:
            line = looks.scrub(line)
        return line, min(at.column, max(0, len(line) - 1)), at.width

    def _collect(self) -> None:
        """All spans that must not be shown, line by line, and where each line's last node ends."""
        texts: set[str] = set()
        for event, hidden in self._scalars(self.root, "", False):
            if hidden and len(event.value) > 3:
                texts.add(event.value)
        for event, hidden in self._scalars(self.root, "", False):
            if hidden or event.value in texts:
                self._hide(event)
            start, end = event.start_mark, event.end_mark
            for number in range(start.line, end.line + 1):
                reach = end.column if number == end.line else 10**9
                self._ends[number] = max(self._ends.get(number, 0), reach)

    def _hide(self, event: Any) -> None:
        assert self._hidden is not None
        assert self._lines is not None
        start, end = event.start_mark, event.end_mark
        for number in range(start.line, min(end.line + 1, len(self._lines))):
            first = start.column if number == start.line else 0
            last = end.column if number == end.line else len(self._lines[number])
            if last > first:
                self._hidden.setdefault(number, []).append((first, last))

    def _scalars(self, node: Any, name: str, hidden: bool) -> Iterator[tuple[Any, bool]]:
        """Each scalar's event, keys too, and whether it must be hidden. An alias is seen where its anchor stands."""
        if isinstance(node, Map):
            entries = [(key, node.get(key), *events) for key, events in node.at.items()]
            for key, value, key_event, event in (*entries, *node.refused):
                if hasattr(key_event, "value"):
                    yield key_event, looks.secret_value(key_event.value)
                below = hidden or (name != "servers" and _speaks_of_secrets(key))
                yield from self._value(value, event, key, below, False)
        elif isinstance(node, Seq):
            flagged = set(looks.suspicious_arguments([v if isinstance(v, str) else "" for v in node]))
            for index, (event, value) in enumerate(zip(node.at, node, strict=True)):
                yield from self._value(value, event, name, hidden, index in flagged)

    def _value(self, value: Any, event: Any, name: str, hidden: bool, flagged: bool) -> Iterator[tuple[Any, bool]]:
        if isinstance(value, (Map, Seq)):
            if value.start is event:
                yield from self._scalars(value, name, hidden)
        elif hasattr(event, "value"):
            yield event, hidden or flagged or looks.held_under(name, event.value)


def _speaks_of_secrets(key: str) -> bool:
    """Whether what stands under a key is to be hidden for the key's sake: ``secrets`` and what was meant to be it."""
    if _SECRETS_KEY.match(key) or looks.secret_name(key):
        return True
    from difflib import SequenceMatcher

    return SequenceMatcher(None, key.lower(), "secrets").ratio() >= _NEARLY_SECRETS


def _nothing(event: Any) -> bool:
    """An empty value has no text of its own to point at."""
    start, end = event.start_mark, event.end_mark
    return bool(start.line == end.line and start.column == end.column)


def _under_secrets(lines: list[str], number: int) -> bool:
    """Whether a line, or one that it is indented under, speaks of secrets. By indent alone: there is no tree."""
    depth = 10**9
    for line in reversed(lines[: number + 1]):
        stripped = line.lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        indent = len(line) - len(stripped)
        if indent < depth:
            depth = indent
            if _SECRETS_WORD.search(line.split(":", 1)[0] if number else line) or _SECRETS_WORD.search(line):
                return True
        if depth == 0:
            return False
    return False
