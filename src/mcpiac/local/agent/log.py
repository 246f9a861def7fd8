"""A service's log: lines with their time and stream, bounded, the older half in a second file."""

from __future__ import annotations

import os
import time
from collections import deque

MAX_BYTES = 1024 * 1024
"""A file is put aside as ``.1`` (the one before is dropped) when it has grown to this."""
MAX_LINE = 8192
LAST_LINES = 10


def stamp(at: float) -> str:
    """ISO 8601 UTC with milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


class Log:
    """``stream`` is ``stdout``, ``stderr`` or ``system``; a line in the file is ``TIME STREAM TEXT``.

    A log that cannot be written (a full disk) loses lines and stops nothing. ``last`` are the newest lines.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._rest: dict[str, bytes] = {}
        self._fd: int | None = None
        self._size = 0
        self.last: deque[str] = deque(maxlen=LAST_LINES)

    def write(self, stream: str, data: bytes) -> None:
        """Add output; the beginning of a line waits for its end."""
        data = self._rest.pop(stream, b"") + data
        lines = data.split(b"\n")
        rest = lines.pop()
        while len(rest) > MAX_LINE:
            lines.append(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        if rest:
            self._rest[stream] = rest
        self._add(stream, lines)

    def say(self, text: str) -> None:
        """A line of the supervisor's own."""
        self._add("system", [text.encode("utf-8", "replace")])

    def end(self) -> None:
        """The program has ended: what waits for its line end is a line."""
        for stream in list(self._rest):
            self._add(stream, [self._rest.pop(stream)])

    def close(self) -> None:
        self.end()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _add(self, stream: str, lines: list[bytes]) -> None:
        if not lines:
            return
        head = f"{stamp(time.time())} {stream} ".encode()
        out = bytearray()
        for line in lines:
            for start in range(0, max(1, len(line)), MAX_LINE):
                piece = line[start : start + MAX_LINE].rstrip(b"\r")
                out += head + piece + b"\n"
                self.last.append(piece[:1000].decode("utf-8", "replace"))
        try:
            self._open(len(out))
            if self._fd is not None:
                os.write(self._fd, out)
                self._size += len(out)
        except OSError:
            return

    def _open(self, more: int) -> None:
        if self._fd is not None and self._size + more > MAX_BYTES and self._size:
            os.close(self._fd)
            self._fd = None
            os.replace(self._path, f"{self._path}.1")
        if self._fd is None:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._fd).st_size
