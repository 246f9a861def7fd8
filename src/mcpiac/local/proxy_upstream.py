"""Connections from the proxy to a server inside a sandbox: one exchange at a time, then kept for the next."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from mcpiac.local.netns import Address
from mcpiac.local.proxy_rules import HEAD_MAX, HEADERS_MAX, Response, response_form

IDLE_SECONDS = 4.0
"""Kept open so long without a request: below the 5 s after which node and uvicorn close from their side."""
IDLE_MAX = 32
CONNECT_SECONDS = 5.0
WRITE_HIGH = 64 * 1024


class Dials(Protocol):
    """What is needed of ``netns.Dialer``."""

    async def connect(self, pid: int, address: Address) -> socket.socket: ...


class Receiver(Protocol):
    """The exchange that a connection works for."""

    bodyless: bool
    """The response has no body whatever its headers say (HEAD)."""
    complete: bool
    """The whole request was written."""

    def response_began(self, response: Response) -> None: ...
    def response_body(self, chunks: list[bytes]) -> None: ...
    def response_ended(self) -> None: ...
    def flush(self) -> None: ...
    def response_failed(self, why: str, *, began: bool, cut: bool) -> None: ...
    def upload_paused(self, paused: bool) -> None: ...


class Upstream(asyncio.Protocol):
    """One connection to a server. Works for one ``Receiver`` at a time; ``given_back`` is called when it is free."""

    __slots__ = (
        *("_began", "_body", "_ended", "_given_back", "_in_head", "_interim", "_parser", "_quiet", "_response"),
        *("_reusable", "_size", "_unasked", "free_until", "keep_seconds", "receiver", "reused", "transport"),
    )

    def __init__(self, given_back: Callable[[Upstream, bool], None]) -> None:
        self._given_back = given_back
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.transport: asyncio.Transport | None = None
        self.receiver: Receiver | None = None
        self.reused = False
        self.free_until = 0.0
        self.keep_seconds = IDLE_SECONDS
        self._reset()

    def _reset(self) -> None:
        self._response = Response()
        self._body: list[bytes] = []
        self._began = False  # the head was handed to the receiver
        self._in_head = True
        self._interim = False
        self._ended = False
        self._reusable = False
        self._unasked = False
        self._quiet = 0
        self._size = 0

    # -- of the exchange

    def begin(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._reset()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_reading(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection, so that the server sees that nobody waits any more."""
        self.receiver = None
        if self.transport is not None:
            self.transport.abort()

    @property
    def alive(self) -> bool:
        """Whether it may still take a request: open, and nothing (an end included) has come in unasked."""
        if self.transport is None or self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)
        return not poll.poll(0)

    # -- of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(WRITE_HIGH)

    def data_received(self, data: bytes) -> None:
        if self.receiver is None or self._parser is None:
            self.abort()
            return
        problem = ""
        before = self._size
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            problem = "it switched protocols unasked"
        except HttpParserError as failure:
            if failure.__context__ is not None and not isinstance(failure.__context__, HttpParserError):
                raise
            problem = str(failure)
        if self._size != before:
            self._quiet = 0
        elif not self._ended:
            self._quiet += len(data)
            if self._quiet > HEAD_MAX:
                problem = problem or "its head or trailer is too large"
        self._deliver(problem)

    def _deliver(self, problem: str) -> None:
        receiver = self.receiver
        if receiver is None:
            return
        if not self._in_head and not self._began and not problem:
            problem = response_form(self._response) or ""
            if not problem:
                self._began = True
                receiver.response_began(self._response)
        if self._began and self._body:
            chunks, self._body = self._body, []
            receiver.response_body(chunks)
        if self.receiver is not receiver:  # the client went away meanwhile
            return
        if self._began and (self._ended or receiver.bodyless):
            clean = self._ended and not self._unasked and not problem
            self._finish(self._reusable and clean and receiver.complete)
            return
        receiver.flush()
        if problem:
            self._fail(problem, cut=True)

    def _finish(self, reusable: bool) -> None:
        receiver, self.receiver = self.receiver, None
        self._given_back(self, reusable)
        if receiver is not None:
            receiver.response_ended()

    def _fail(self, why: str, *, cut: bool) -> None:
        receiver, self.receiver = self.receiver, None
        began = self._began
        if self.transport is not None:
            self.transport.abort()
        if receiver is not None:
            receiver.response_failed(why, began=began, cut=cut)

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None
        receiver = self.receiver
        self._given_back(self, False)
        if receiver is None:
            return
        until_end = self._began and not self._response.chunked and self._response.length is None
        if until_end and exc is None:
            self.receiver = None
            receiver.response_ended()
        else:
            self._fail("it closed the connection", cut=not self._in_head or self._size > 0)

    def pause_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.upload_paused(True)

    def resume_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.upload_paused(False)

    # -- of the parser

    def on_message_begin(self) -> None:
        if self._ended or not self._in_head:
            self._unasked = True

    def on_status(self, status: bytes) -> None:
        if not self._unasked:
            self._response.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head or self._unasked:
            return  # a trailer, or a response that nobody asked for
        self._response.headers.append((name, name.lower(), value.strip(b" \t")))
        if len(self._response.headers) > HEADERS_MAX:
            raise HttpParserError("it has too many headers")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        if self._unasked:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._interim = True
            return
        self._response.status = status
        self._reusable = self._parser.should_keep_alive()
        self.keep_seconds = _keep_seconds(self._response)
        self._in_head = False
        self._size += 1

    def on_body(self, body: bytes) -> None:
        if not self._unasked:
            self._body.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if self._unasked:
            return
        if self._interim:
            self._response = Response()
            self._interim = False
            return
        self._ended = True


class Pool:
    """Free connections per (first process of the sandbox, port). One timer while there are any, none otherwise."""

    def __init__(self, dialer: Dials) -> None:
        self._dialer = dialer
        self._free: dict[tuple[int, int], list[Upstream]] = {}
        self._open: dict[tuple[int, int], set[Upstream]] = {}
        self._family: dict[tuple[int, int], str] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def take(self, pid: int, port: int) -> Upstream | None:
        """A free connection, the one used last."""
        free = self._free.get((pid, port))
        while free:
            connection = free.pop()
            if connection.alive:
                connection.reused = True
                return connection
            connection.abort()
        return None

    async def connect(self, pid: int, port: int) -> Upstream:
        """A new connection: to 127.0.0.1, else to ::1 (a server told ``localhost`` may be there only).

        Raises OSError; TimeoutError after ``CONNECT_SECONDS``.
        """
        key = (pid, port)
        first = self._family.get(key, "127.0.0.1")
        async with asyncio.timeout(CONNECT_SECONDS):
            try:
                made = await self._dialer.connect(pid, (first, port))
            except ConnectionRefusedError as refused:
                first = "::1" if first == "127.0.0.1" else "127.0.0.1"
                try:
                    made = await self._dialer.connect(pid, (first, port))
                except OSError:
                    raise refused from None
        self._family[key] = first
        connection = Upstream(lambda which, reusable: self._returned(key, which, reusable))
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, sock=made)
        except BaseException:
            made.close()
            raise
        self._open.setdefault(key, set()).add(connection)
        return connection

    def _returned(self, key: tuple[int, int], connection: Upstream, reusable: bool) -> None:
        transport = connection.transport
        if transport is not None and not transport.is_closing():
            free = self._free.setdefault(key, [])
            if reusable and connection.keep_seconds > 0 and len(free) < IDLE_MAX:
                transport.resume_reading()
                loop = asyncio.get_running_loop()
                connection.free_until = loop.time() + connection.keep_seconds
                free.append(connection)
                if self._sweep is None:
                    self._sweep = loop.call_later(IDLE_SECONDS / 4, self._close_unused)
                return
            transport.abort()
        opened = self._open.get(key, set())
        opened.discard(connection)
        if not opened:
            self._open.pop(key, None)
            self._free.pop(key, None)
        elif connection in self._free.get(key, ()):
            self._free[key].remove(connection)

    def _close_unused(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        left = False
        for free in list(self._free.values()):
            for connection in list(free):
                if connection.free_until <= now:
                    free.remove(connection)
                    connection.abort()
                else:
                    left = True
        self._sweep = loop.call_later(IDLE_SECONDS / 4, self._close_unused) if left else None

    def drop(self, pid: int) -> None:
        """Close every connection into a sandbox that has ended; exchanges under way fail."""
        for key in [key for key in self._open if key[0] == pid]:
            for connection in list(self._open.get(key, ())):
                if connection.transport is not None:
                    connection.transport.abort()
        for key in [key for key in self._family if key[0] == pid]:
            del self._family[key]

    def close(self) -> None:
        """Close every connection."""
        for pid in {key[0] for key in self._open}:
            self.drop(pid)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None


def _keep_seconds(response: Response) -> float:
    """How long the connection may be kept: a second less than a ``Keep-Alive: timeout=N`` of the server."""
    for value in response.all(b"keep-alive"):
        for part in value.split(b","):
            name, _, number = part.strip().partition(b"=")
            if name.lower() == b"timeout" and number.isdigit():
                return min(IDLE_SECONDS, int(number[:9]) - 1.0)
    return IDLE_SECONDS
