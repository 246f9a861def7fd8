"""One epoll loop: descriptors, timers, ends of child processes, and framed connections."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from heapq import heappop, heappush

from .frames import CHUNK, FrameError, decode, encode, length

READ = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
WRITE = select.EPOLLOUT
_OUT_HIGH = 1024 * 1024
"""A connection that holds more than this unsent is not given more output: its source is not read meanwhile."""


class Timer:
    """A call to come; ``cancel`` takes it back."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Runs callbacks until ``stopping``."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[int], object]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self.stopping = False

    def watch(self, fd: int, call: Callable[[int], object], events: int = READ) -> None:
        """Call ``call(events)`` whenever ``fd`` is ready."""
        if fd in self._calls:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._calls[fd] = call

    def unwatch(self, fd: int) -> None:
        """Forget ``fd``; must precede its close."""
        if self._calls.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call once, after so many seconds."""
        timer = Timer(call)
        self._count += 1
        heappush(self._timers, (time.monotonic() + seconds, self._count, timer))
        return timer

    def on_exit(self, pid: int, call: Callable[[int], object]) -> None:
        """Call with the wait status when a child of ours ends; it is reaped here."""
        fd = os.pidfd_open(pid)

        def ended(_events: int) -> None:
            self.unwatch(fd)
            os.close(fd)
            call(os.waitpid(pid, 0)[1])

        self.watch(fd, ended, select.EPOLLIN)

    def run(self) -> None:
        while not self.stopping:
            for fd, events in self._epoll.poll(self._wait()):
                call = self._calls.get(fd)
                if call is not None:
                    call(events)
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                due = heappop(self._timers)[2].call
                if due is not None:
                    due()

    def _wait(self) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None


class Connection:
    """A framed connection. ``request`` is called with its first frame; later frames are refused.

    ``on_close`` and ``on_drain`` are set by whoever answers: the peer is gone; what was unsent has gone out.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        request: Callable[[Connection, dict], None],  # type: ignore[type-arg]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._request: Callable[[Connection, dict], None] | None = request  # type: ignore[type-arg]
        self._in = bytearray()
        self._out = bytearray()
        self._ending = False
        self._blocked = False
        self.closed = False
        self.on_close: Callable[[], None] | None = None
        self.on_drain: Callable[[], None] | None = None
        sock.setblocking(False)
        loop.watch(sock.fileno(), self._ready)

    @property
    def full(self) -> bool:
        """Whether more output should wait for ``on_drain``."""
        return len(self._out) > _OUT_HIGH

    def send(self, message: dict, *, last: bool = False) -> None:  # type: ignore[type-arg]
        """Queue a frame; after the ``last`` one the connection is closed."""
        if self.closed:
            return
        self._out += encode(message)
        self._ending = self._ending or last
        self._flush()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.unwatch(self._sock.fileno())
        self._sock.close()
        if self.on_close is not None:
            self.on_close()

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if not self.closed and events & READ:
            self._read()

    def _read(self) -> None:
        try:
            data = self._sock.recv(4 * CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._in += data
        try:
            while self._request is not None and len(self._in) >= 4 and len(self._in) >= 4 + length(self._in):
                end = 4 + length(self._in)
                request, self._request = self._request, None
                body = bytes(self._in[4:end])
                self._in.clear()
                request(self, decode(body))
            if self._request is None and self._in:
                raise FrameError("one request a connection")
        except FrameError as fault:
            self.send({"error": "bad_frame", "message": str(fault)}, last=True)

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out[: 4 * CHUNK])]
        except BlockingIOError:
            self._blocked = True
            self._loop.watch(self._sock.fileno(), self._ready, READ | WRITE)
            return
        except OSError:
            self.close()
            return
        if self._ending:
            self.close()
            return
        if self._blocked:
            self._blocked = False
            self._loop.watch(self._sock.fileno(), self._ready, READ)
            if self.on_drain is not None:
                self.on_drain()
