"""Connections of clients to a hosted port: requests come in, are admitted, and one after another passed on.

A connection is a queue of exchanges of which the first is under way. While the first cannot take more of its body
(its sandbox wakes, the server reads slowly) or a second one has come in (pipelining), nothing more is read, so what
is held in memory is bounded by one read and the buffers of two transports.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections import deque
from typing import TYPE_CHECKING

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from mcpiac.local import proxy_rules as rules
from mcpiac.local.proxy_exchange import Exchange
from mcpiac.local.proxy_rules import Answer

if TYPE_CHECKING:
    from mcpiac.local.proxy import Listener
    from mcpiac.local.proxy_upstream import Upstream

HEAD_SECONDS = 30.0
"""A head that has begun must be complete after so long."""
IDLE_SECONDS = 300.0
"""A connection without a request is closed after so long."""
DRAIN_SECONDS = 2.0
DRAIN_MAX = 1024 * 1024
WRITE_HIGH = 64 * 1024


class Client(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        "_head_bytes",
        "_in_head",
        "_incoming",
        "_parser",
        "_progress",
        "_queue",
        "_reading",
        "_stuck",
        "_upload_paused",
        "_write_paused",
        "drained",
        "draining",
        "listener",
        "since",
        "transport",
    )

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.transport: asyncio.Transport | None = None
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._queue: deque[Exchange] = deque()
        self._incoming: Exchange | None = None
        self._in_head = False
        self._head_bytes = 0
        self._stuck = 0  # bytes since the message last moved on
        self._progress = 0
        self._reading = True
        self._upload_paused = False
        self._write_paused = False
        self.draining = False
        self.drained = 0
        self.since = 0.0

    # -- of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(WRITE_HIGH)
        self.since = self.listener.now()
        if not self.listener.connected(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None
        self.listener.disconnected(self)
        while self._queue:
            exchange = self._queue.popleft()
            if exchange.task is not None:
                exchange.task.cancel()
            if exchange.upstream is not None:
                exchange.upstream.abort()
                exchange.upstream = None
            self.listener.ended(exchange, aborted=True)

    def data_received(self, data: bytes) -> None:
        if self.draining:
            self.drained += len(data)
            if self.drained > DRAIN_MAX and self.transport is not None:
                self.transport.abort()
            return
        if self._parser is None:
            return
        before = self._progress
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._parser = None  # refused by its form; nothing more is read
        except HttpParserCallbackError as failure:
            raise failure.__context__ or failure from None
        except HttpParserError as failure:
            self._malformed(rules.bad_request(str(failure).lower()))
        if self._progress != before:
            self._stuck = 0
        elif self._incoming is not None:
            self._stuck += len(data)
            if self._stuck > rules.HEAD_MAX:
                self._malformed(rules.TOO_LARGE)
        self._advance()

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._queue and self._queue[0].upstream is not None:
            self._queue[0].upstream.pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._queue and self._queue[0].upstream is not None:
            self._queue[0].upstream.resume_reading()

    # -- of the parser

    def on_message_begin(self) -> None:
        self._incoming = Exchange(self, self.listener.now())
        self._in_head = True
        self._head_bytes = 0
        self.since = self._incoming.begun

    def on_url(self, url: bytes) -> None:
        assert self._incoming is not None
        self._incoming.request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self._incoming
        assert exchange is not None
        if not self._in_head:
            return  # a trailer
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > rules.HEAD_MAX or len(exchange.request.headers) >= rules.HEADERS_MAX:
            exchange.refusal = rules.TOO_LARGE
            return
        exchange.request.headers.append((name, name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        exchange, parser = self._incoming, self._parser
        assert exchange is not None
        assert parser is not None
        request = exchange.request
        request.method = parser.get_method()
        request.version = parser.get_http_version()
        exchange.keep = parser.should_keep_alive()
        exchange.bodyless = request.method == b"HEAD"
        if len(request.target) > rules.HEAD_MAX:
            exchange.refusal = rules.TOO_LARGE
        if exchange.refusal is None:
            exchange.refusal = rules.form(request) or rules.admit(request, self.listener.route)
        self._in_head = False
        self._progress += 1
        self._queue.append(exchange)

    def on_body(self, body: bytes) -> None:
        exchange = self._incoming
        assert exchange is not None
        exchange.received += len(body)
        self._progress += 1
        if exchange.refusal is None:
            exchange.pending.append(body)

    def on_message_complete(self) -> None:
        exchange, self._incoming = self._incoming, None
        assert exchange is not None
        exchange.incoming = False
        self._progress += 1

    def _malformed(self, answer: Answer) -> None:
        """Nothing after this can be read as HTTP; what came in whole before it is still answered."""
        self._parser = None
        exchange = self._incoming
        if exchange is None:
            exchange = Exchange(self, self.listener.now())
        if exchange is self._incoming and not self._in_head:
            exchange.broken = answer
        else:
            exchange.refusal = answer
            exchange.keep = False
            self._queue.append(exchange)

    # -- the queue

    def _advance(self) -> None:
        """Go on as far as can be gone without waiting."""
        while self._queue and not self.draining:
            exchange = self._queue[0]
            if exchange.broken is not None:
                self._give_up(exchange, exchange.broken)
                break
            if not exchange.started:
                exchange.started = True
                self._start(exchange)
            elif exchange.upstream is not None and not exchange.complete:
                self.listener.moved(exchange)
                exchange.upload()
            if self._queue and self._queue[0] is exchange:
                break
        self._regulate()

    def _start(self, exchange: Exchange) -> None:
        if exchange.refusal is not None:
            self.answer(exchange, exchange.refusal)
            return
        exchange.stream = rules.is_stream(exchange.request)
        self.listener.began(exchange)
        self._reach(exchange)

    def _reach(self, exchange: Exchange) -> None:
        upstream = self.listener.take()
        if upstream is not None:
            self._attach(exchange, upstream)
        else:
            exchange.task = asyncio.get_running_loop().create_task(self._connect(exchange))

    async def _connect(self, exchange: Exchange) -> None:
        reached = await self.listener.reach()
        exchange.task = None
        if isinstance(reached, Answer):
            self.answer(exchange, reached)
        else:
            self._attach(exchange, reached)
        self._advance()

    def _attach(self, exchange: Exchange, upstream: Upstream) -> None:
        exchange.upstream = upstream
        upstream.begin(exchange)
        if self._write_paused:
            upstream.pause_reading()
        if exchange.incoming and not exchange.pending and exchange.request.get(b"expect") is not None:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        exchange.upload(rules.request_head(exchange.request, self.listener.route))

    def again(self, exchange: Exchange) -> None:
        """Send a request anew over a fresh connection."""
        exchange.complete = False
        exchange.task = asyncio.get_running_loop().create_task(self._connect(exchange))

    def answer(self, exchange: Exchange, answer: Answer) -> None:
        """Say something ourselves in place of the server."""
        exchange.status = answer.status
        exchange.pending.clear()
        exchange.close = answer.close or not exchange.keep or exchange.incoming
        self.write(answer.render(close=exchange.close, head_only=exchange.bodyless))
        self.finished(exchange)

    def _give_up(self, exchange: Exchange, answer: Answer) -> None:
        """The body of the request is malformed: the server must not take it for complete."""
        if exchange.task is not None:
            exchange.task.cancel()
            exchange.task = None
        if exchange.upstream is not None:
            exchange.upstream.abort()
            exchange.upstream = None
        if exchange.answered:
            self.break_off()
        else:
            self.answer(exchange, answer)

    def finished(self, exchange: Exchange) -> None:
        """The response was written to its end."""
        if not self._queue or self._queue[0] is not exchange:
            return
        self._queue.popleft()
        self.since = self.listener.now()
        self.listener.ended(exchange, aborted=False)
        self._upload_paused = False
        if exchange.close:
            self._drain(exchange.incoming or bool(self._queue))
        elif self._queue:
            asyncio.get_running_loop().call_soon(self._advance)
        else:
            self._regulate()

    def break_off(self) -> None:
        """A response that has begun cannot be ended well: the client must see that it is cut."""
        if self.transport is not None:
            self.transport.abort()

    def _drain(self, expected: bool) -> None:
        """Close; when more may be on its way read it first, since closing over it could destroy the answer."""
        self.draining = True
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not expected:
            transport.close()
            return
        with contextlib.suppress(OSError, RuntimeError):
            transport.write_eof()
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, transport.abort)

    def upload_paused(self, paused: bool) -> None:
        """The server takes no more of the body for now."""
        self._upload_paused = paused
        self._regulate()

    def _regulate(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing() or self.draining:
            return
        first = self._queue[0] if self._queue else None
        wanted = len(self._queue) <= 1 and not self._upload_paused
        if first is not None and first.incoming and first.upstream is None and first.refusal is None:
            wanted = False
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    # -- of the listener's sweep

    def overdue(self, now: float) -> bool:
        """Whether a head takes too long, nothing was asked for too long, or the client left unseen."""
        if self._queue or self.draining:
            return not self._reading and self._left()
        return now - self.since > (HEAD_SECONDS if self._incoming is not None else IDLE_SECONDS)

    def _left(self) -> bool:
        """asyncio sees the end of a connection only while it reads from it."""
        if self.transport is None or self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
