"""The log: lines on stderr that never hold up the bridge, whoever reads them or does not."""

from __future__ import annotations

import os
import select
from collections import deque

_SLICE = 4096  # PIPE_BUF: a pipe that polls writable takes this much without blocking
_KEPT = 1000


class Log:
    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._lost = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def write(self, text: str) -> None:
        if len(self._lines) >= _KEPT:
            self._lost += 1
            return
        line = ("mcpiac-bridge: " + text.replace("\n", " ")).encode("utf-8", "replace")
        self._lines.append(line[: _SLICE - 1] + b"\n")
        self.flush()

    def flush(self) -> None:
        """Writes what the reader takes now."""
        while self._lines:
            ready = self._poll.poll(0)
            if not ready or not ready[0][1] & select.POLLOUT:
                return
            try:
                os.write(self._fd, self._lines.popleft())
            except OSError:
                return
        if self._lost:
            lost, self._lost = self._lost, 0
            self.write(f"{lost} log lines lost: nobody read them")
