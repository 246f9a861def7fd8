"""One request of a client and its response: what the client's connection and the server's share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpiac.local import proxy_rules as rules
from mcpiac.local.proxy_rules import Answer, Request, Response

if TYPE_CHECKING:
    from mcpiac.local.proxy_client import Client
    from mcpiac.local.proxy_upstream import Upstream

_RETRIED = frozenset((b"GET", b"HEAD", b"OPTIONS"))
"""Sent again over a new connection when a kept one was closed as it was used."""


class Exchange:
    """One request and its response; the ``Receiver`` of an upstream connection."""

    __slots__ = (
        "_client",
        "answered",
        "begun",
        "bodyless",
        "broken",
        "chunk",
        "close",
        "complete",
        "counted",
        "incoming",
        "keep",
        "out",
        "pending",
        "received",
        "refusal",
        "request",
        "sent",
        "started",
        "status",
        "stream",
        "task",
        "upstream",
    )

    def __init__(self, client: Client, now: float) -> None:
        self._client = client
        self.request = Request()
        self.pending: list[bytes] = []
        self.incoming = True  # more of the request is to come
        self.complete = False  # all of it was written upstream
        self.bodyless = False
        self.keep = True
        self.refusal: Answer | None = None
        self.broken: Answer | None = None  # the body turned out to be malformed
        self.started = False
        self.begun = now
        self.status = 0
        self.received = self.sent = 0
        self.stream = False
        self.counted = False  # it was told to the idle clock
        self.answered = False  # the response head was written
        self.chunk = False
        self.close = False
        self.out = b""
        self.upstream: Upstream | None = None
        self.task: asyncio.Task[None] | None = None

    def upload(self, head: bytes = b"") -> None:
        """Write to the server, in one go: the head where given, and what has come in of the body, framed anew."""
        upstream = self.upstream
        if upstream is None or self.complete:
            return
        body = b"".join(self.pending)
        self.pending.clear()
        if self.request.chunked:
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if not self.incoming:
                body += b"0\r\n\r\n"
        self.complete = not self.incoming
        if head or body:
            upstream.write(head + body)

    # -- called by the upstream connection

    def response_began(self, response: Response) -> None:
        client = self._client
        self.status = response.status
        no_body = self.bodyless or response.status in (204, 304)
        unknown = response.length is None and not no_body
        modern = self.request.version == "1.1"
        self.chunk = unknown and modern
        self.close = not self.keep or self.incoming or (unknown and not modern)
        self.answered = True
        if self.request.method == b"GET" and self.stream != response.event_stream:
            client.listener.ended_activity(self)
            self.stream = response.event_stream
            client.listener.began(self)
        route = client.listener.route
        self.out = rules.response_head(response, self.request, route, chunk=self.chunk, close=self.close)

    def response_body(self, chunks: list[bytes]) -> None:
        data = b"".join(chunks)
        self.sent += len(data)
        if self.bodyless:
            return
        if not (self.stream and rules.is_keepalive(data)):
            self._client.listener.moved(self)
        self.out += b"%x\r\n%b\r\n" % (len(data), data) if self.chunk else data

    def response_ended(self) -> None:
        self.upstream = None
        if self.chunk:
            self.out += b"0\r\n\r\n"
        self.flush()
        self._client.finished(self)

    def flush(self) -> None:
        """Write what one read from the server has given: head and body in one go."""
        if self.out:
            out, self.out = self.out, b""
            self._client.write(out)

    def response_failed(self, why: str, *, began: bool, cut: bool) -> None:
        stale = self.upstream is not None and self.upstream.reused and not cut
        self.upstream = None
        if began:
            self._client.break_off()
        elif stale and self.request.method in _RETRIED and not self.request.has_body:
            self._client.again(self)  # the server closed a kept connection just as we used it
        else:
            self._client.answer(self, self._client.listener.bad_gateway(why))

    def upload_paused(self, paused: bool) -> None:
        self._client.upload_paused(paused)
