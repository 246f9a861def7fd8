"""The HTTP edge: h11 over asyncio. Whole requests in, the core's answers out."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Protocol

import h11

from . import gate
from .gate import Head, Refusal, Rules, error_text, head_of

_HEAD_LIMIT = 64 << 10
_AHEAD = 256 << 10  # bytes of a next request read while one is being answered
_HIGH_WATER = 256 << 10
_DRAIN_SECONDS = 2.0


class Core(Protocol):
    """What a connection tells the rest of the edge."""

    rules: Rules

    def new_exchange(self, connection: Connection) -> int: ...
    def request(self, exchange: int, head: Head, body: bytes) -> None: ...
    def gone(self, exchange: int) -> None: ...
    def blocked(self, exchange: int, on: bool) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One client connection; at most one exchange at a time."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT)
        self._transport: asyncio.Transport | None = None
        self._head: Head | None = None
        self._refusal: Refusal | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._ahead = 0
        self._reading = True
        self._draining = False
        self._drained: asyncio.TimerHandle | None = None
        self.exchange: int | None = None
        self.moved = 0  # changes whenever bytes move; the edge closes connections that stand still

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        self._transport = None
        if self._drained is not None:
            self._drained.cancel()
        self._core.closed(self)
        if exchange is not None:
            self._core.gone(exchange)

    def eof_received(self) -> bool:
        return False  # a client that closes its side has gone: nothing it asked is wanted

    def data_received(self, data: bytes) -> None:
        self.moved += 1
        if self._draining:
            return
        try:
            self._h11.receive_data(data)
        except h11.RemoteProtocolError as exc:
            self._broken(exc)
            return
        if self.exchange is None:
            self._advance()
        else:
            self._ahead += len(data)
            if self._ahead > _AHEAD and self._transport is not None:
                self._reading = False
                self._transport.pause_reading()

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self._core.blocked(self.exchange, True)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self._core.blocked(self.exchange, False)

    # requests

    def _advance(self) -> None:
        while self.exchange is None and self._transport is not None and not self._draining:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as exc:
                self._broken(exc)
                return
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                self._request(event)
            elif isinstance(event, h11.Data):
                self._size += len(event.data)
                if self._refusal is None and self._size > self._core.rules.max_body:
                    self._refuse_now(self._core.rules.too_large())
                elif self._refusal is None:
                    self._body.append(bytes(event.data))
                elif self._size > _AHEAD:
                    self._refuse_now(self._refusal)
            elif isinstance(event, h11.EndOfMessage):
                self._complete()
            else:  # ConnectionClosed
                self._transport.close()
                return

    def _request(self, event: h11.Request) -> None:
        headers = [(n.decode("ascii"), v.decode("latin-1")) for n, v in event.headers]
        self._head = head_of(event.method.decode("ascii"), event.target.decode("latin-1"), headers)
        self._refusal = self._core.rules.refuse(self._head)
        self._body = []
        self._size = 0
        if self._refusal is not None and self._refusal.status == 413:
            self._refuse_now(self._refusal)
        elif self._h11.they_are_waiting_for_100_continue:
            if self._refusal is not None:
                self._refuse_now(self._refusal)
            else:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def _complete(self) -> None:
        head, body = self._head, b"".join(self._body)
        assert head is not None
        self._body = []
        if self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self.exchange = self._core.new_exchange(self)
            self._core.request(self.exchange, head, body)

    def _refuse(self, refusal: Refusal, close: bool = False) -> None:
        text = error_text(None, refusal.code, refusal.message, refusal.data)
        headers = [("content-type", "application/json"), *refusal.headers]
        if close:
            headers.append(("connection", "close"))
        self.respond(refusal.status, headers, text.encode())

    def _refuse_now(self, refusal: Refusal) -> None:
        """Refuses before the body is read: the rest of it is thrown away, then the connection closed."""
        self._draining = True
        self._body = []
        self._refuse(refusal, close=True)
        if self._transport is not None:
            try:
                self._transport.write_eof()
            except OSError:  # the client has gone already
                self._transport.close()
                return
            self._drained = self._loop.call_later(_DRAIN_SECONDS, self.close)

    def _broken(self, exc: h11.RemoteProtocolError) -> None:
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE) and self.exchange is None:
            refusal = Refusal(exc.error_status_hint or 400, gate.INVALID_REQUEST, "malformed HTTP request")
            try:
                self._refuse_now(refusal)
            except h11.LocalProtocolError:
                self.close()
        else:
            self.close()

    # answers

    def respond(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        response = h11.Response(
            status_code=status, headers=[*headers, ("content-length", str(len(body)))], reason=_reason(status)
        )
        events: list[Any] = [response]
        if body and not (self._head is not None and self._head.method == "HEAD"):
            events.append(h11.Data(data=body))
        events.append(h11.EndOfMessage())
        self._send(*events)
        self._next()

    def begin(self, headers: list[tuple[str, str]]) -> None:
        self._send(h11.Response(status_code=200, headers=headers, reason=b"OK"))

    def data(self, data: bytes) -> None:
        self._send(h11.Data(data=data))

    def finish(self) -> None:
        self._send(h11.EndOfMessage())
        self._next()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes with a reset: the kernel then keeps nothing for a client that does not read."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _send(self, *events: Any) -> None:
        if self._transport is None:
            return
        self.moved += 1
        self._transport.write(b"".join(self._h11.send(event) or b"" for event in events))

    def _next(self) -> None:
        """Ready for the connection's next request."""
        self.exchange = None
        if self._transport is None or self._draining:
            return
        if self._h11.our_state is h11.MUST_CLOSE or self._h11.their_state is not h11.DONE:
            self._transport.close()
            return
        try:
            self._h11.start_next_cycle()
        except h11.LocalProtocolError:
            self._transport.close()
            return
        self._head = None
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        if self._ahead:
            self._ahead = 0
            self._loop.call_soon(self._advance)


def _reason(status: int) -> bytes:
    return _REASONS.get(status, b"")


_REASONS = {
    200: b"OK",
    202: b"Accepted",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    421: b"Misdirected Request",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
