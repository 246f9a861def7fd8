"""A server's stderr: always drained, masked, rate-limited into the log, its reason kept.

Values of the environment are masked wherever they appear, since servers print them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

_SHORTEST = 6  # a shorter value is too likely an ordinary word
_LINE = 400
_FIRST = 6
_LAST = 6
_RATE = 50.0  # lines a second
_BURST = 200.0
_BLOCK = 1 << 14


class Masker:
    """Replaces values of the environment by the variable's name in brackets."""

    def __init__(self, environment: Iterable[tuple[str, str]]) -> None:
        names: dict[str, str] = {}
        for name, value in environment:
            for part in {value, *value.splitlines()}:
                if len(part) >= _SHORTEST:
                    names.setdefault(part, name)
        self._names = names
        longest_first = sorted(names, key=len, reverse=True)
        self._find = re.compile("|".join(re.escape(v) for v in longest_first)) if names else None

    def mask(self, text: str) -> str:
        if self._find is None:
            return text
        return self._find.sub(lambda found: "[" + self._names[found.group()] + "]", text)


class StderrLog:
    """One child's stderr: bytes in, lines for the log out."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._part = b""
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST)
        self._more = 0
        self._tokens = _BURST
        self._at: float | None = None
        self.suppressed = 0

    def feed(self, data: bytes, now: float) -> list[str]:
        if self._at is not None:
            self._tokens = min(_BURST, self._tokens + (now - self._at) * _RATE)
        self._at = now
        if self._tokens < 1.0 and len(self._first) >= _FIRST and len(data) > _BLOCK:
            skipped = data[:-_BLOCK]  # a flood: its end is enough
            self.suppressed += skipped.count(b"\n")
            self._part, data = b"", data[-_BLOCK:]
        lines = (self._part + data).split(b"\n")
        self._part = lines.pop()[:_LINE]
        shown: list[str] = []
        for line in lines:
            if not line.strip():
                continue
            if self._tokens < 1.0 and len(self._first) >= _FIRST and len(lines) > _LAST:
                self.suppressed += 1
                self._last.append("")  # filled below with the true last lines
                continue
            text = self._clean(line)
            self._remember(text)
            if self._tokens >= 1.0:
                self._tokens -= 1.0
                if self.suppressed:
                    shown.append(f"({self.suppressed} lines of stderr not shown)")
                    self.suppressed = 0
                shown.append(text)
            else:
                self.suppressed += 1
        if len(self._last) and self._last[-1] == "":
            self._last.clear()
            self._last.extend(self._clean(line) for line in lines[-_LAST:] if line.strip())
        return shown

    def reason(self) -> tuple[str, ...]:
        """The first and the last lines: why a child failed is in one of them."""
        lines = list(self._first)
        if self._more:
            lines.append("...")
        lines += self._last
        if self._part.strip():
            lines.append(self._clean(self._part))
        return tuple(lines)

    def _remember(self, text: str) -> None:
        if len(self._first) < _FIRST:
            self._first.append(text)
            return
        if len(self._last) == _LAST:
            self._more += 1
        self._last.append(text)

    def _clean(self, line: bytes) -> str:
        text = self._masker.mask(line.decode("utf-8", "replace"))[:_LINE]
        return "".join(c if c.isprintable() else "?" for c in text.rstrip())
