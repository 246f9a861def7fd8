"""A server's stdout: bytes in, JSON-RPC messages and noise out; repairs what is certain.

Certain: CR LF, a byte order mark, invalid UTF-8 (replaced), UTF-8 split over writes, text before a
message on its line, several messages on one line, a message spread over lines, a batch.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Union

from .jsonscan import Message, NotJSON, after_blank, elements

_HEAD = 4096
_SPREAD_LINES = 2000
_SPREAD_BYTES = 1 << 18
_message_start = re.compile(r'\{\s*"(?:jsonrpc|id|method|result|error|params)"\s*:')
_answer_start = re.compile(r'\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*[,}]')
_answer_part = re.compile(r'"(?:result|error)"\s*:')


class Noise(NamedTuple):
    """Output that is no message."""

    text: str
    why: str
    is_answer: bool = False  # it was meant as one, and is broken
    raw_id: str | None = None  # the id of that answer, where it is certain


Item = Union[Message, Noise]  # noqa: UP007 - evaluated, and 3.9 has no |


class LineReader:
    """Splits a byte stream at newlines; a line over `limit` bytes is dropped, its head kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self.size = 0
        self._over = False

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Lines that `data` completes, each with whether it was too long (then only its head)."""
        if b"\n" not in data:
            self._keep(data)
            return []
        pieces = data.split(b"\n")
        lines: list[tuple[bytes, bool]] = []
        self._keep(pieces[0])
        lines.append(self._take())
        limit = self.limit
        for piece in pieces[1:-1]:
            lines.append((piece, False) if len(piece) <= limit else (piece[:_HEAD], True))
        self._keep(pieces[-1])
        return lines

    def rest(self) -> tuple[bytes, bool]:
        """What stood after the last newline when the stream ended."""
        return self._take()

    def _keep(self, piece: bytes) -> None:
        if self._over or not piece:
            return
        self.size += len(piece)
        self._parts.append(piece)
        if self.size > self.limit:
            self._over = True
            self._parts = [b"".join(self._parts)[:_HEAD]]

    def _take(self) -> tuple[bytes, bool]:
        line, over = b"".join(self._parts), self._over
        self._parts, self.size, self._over = [], 0, False
        return line, over


class MessageReader:
    """Turns the lines of a server's stdout into messages and noise."""

    def __init__(self, limit: int) -> None:
        self._lines = LineReader(limit)
        self._limit = limit
        self._held: list[str] = []  # lines of what may be one message spread over lines
        self._held_size = 0
        self.repaired = 0

    @property
    def in_line(self) -> bool:
        """Whether the beginning of a line has come and its end has not."""
        return self._lines.size > 0

    def feed(self, data: bytes) -> list[Item]:
        items: list[Item] = []
        for line, over in self._lines.feed(data):
            self._line(line, over, items)
        return items

    def end(self) -> list[Item]:
        """The stream ended: a complete message without its newline still counts."""
        items: list[Item] = []
        line, over = self._lines.rest()
        self._line(line, over, items)
        self._give_up(items)
        return items

    def _line(self, line: bytes, over: bool, items: list[Item]) -> None:
        if over:
            self._give_up(items)
            text = line.decode("utf-8", "replace")
            items.append(_broken(text, f"line over {self._limit} bytes"))
            return
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            text = line.decode("utf-8", "replace")
            self.repaired += 1
        text = text.strip("\ufeff\x00 \t\r")
        if not text:
            return
        why = "not a JSON-RPC message"
        if text[0] == "{":
            try:
                message = Message(text)
            except NotJSON as exc:
                why = str(exc)
            else:
                if message.end == len(text) and message.kind != "other":
                    self._give_up(items)
                    items.append(message)
                    return
                if message.end == len(text) and not self._held:
                    items.append(Noise(text, why))
                    return
        self._odd(text, why, items)

    def _odd(self, text: str, why: str, items: list[Item]) -> None:
        """A line that is not exactly one message."""
        found = _messages_in(text)
        if found:
            self._give_up(items)
            self.repaired += 1
            items.extend(found)
            return
        if self._held or text[0] == "{":
            broken = _broken(text, why)
            if not self._held and broken.is_answer and text[-1] == "}":
                # looks like a whole answer that is broken, not like the first line of one
                items.append(broken)
                return
            self._held.append(text)
            self._held_size += len(text)
            if text[-1] in "}]":
                joined = _messages_in("\n".join(self._held))
                if joined:
                    self._held, self._held_size = [], 0
                    self.repaired += 1
                    items.extend(joined)
                    return
            if len(self._held) > _SPREAD_LINES or self._held_size > _SPREAD_BYTES:
                self._give_up(items)
            return
        items.append(Noise(text, why))

    def _give_up(self, items: list[Item]) -> None:
        if self._held:
            text = "\n".join(self._held)
            self._held, self._held_size = [], 0
            items.append(_broken(text, "not a JSON-RPC message"))


def _broken(text: str, why: str) -> Noise:
    """Noise that may have been meant as an answer."""
    if '"jsonrpc"' not in text[:_HEAD] or not (_answer_part.search(text[:_HEAD]) or len(text) > _HEAD):
        return Noise(text, why)
    found = _answer_start.match(text)
    return Noise(text, why, True, found.group(1) if found else None)


def _messages_in(text: str) -> list[Item]:
    """Messages that fill the text from some point to its end; [] when that is not certain."""
    if text[0] == "[":
        try:
            spans, end = elements(text, 0)
            batch = [Message(text, start) for start, _ in spans]
        except NotJSON:
            batch = []
        else:
            if batch and end == len(text) and all(m.kind != "other" for m in batch):
                return list(batch)
    start = _message_start.search(text)
    if start is None:
        return []
    found: list[Item] = []
    at = start.start()
    if at:
        found.append(Noise(text[:at], "text before a message"))
    while at < len(text):
        try:
            message = Message(text, at)
        except NotJSON:
            return []
        if message.kind == "other":
            return []
        found.append(message)
        at = after_blank(text, message.end)
    return found
