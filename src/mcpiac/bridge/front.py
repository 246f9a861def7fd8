"""Where HTTP requests go: to a session, to the pool, or back with a reason."""

from __future__ import annotations

from collections.abc import Callable

from . import commands as do
from .core import Core
from .gate import (
    BRIDGE_ERROR,
    INVALID_REQUEST,
    LEGACY_VERSIONS,
    PARSE_ERROR,
    Head,
    Refusal,
    accepts,
    check_modern,
    error_text,
    is_modern,
)
from .jsonscan import Message, NotJSON, parse
from .pool import Pool
from .probe import Prober
from .session import Session
from .stream import Stream

JSON = ("content-type", "application/json")


class Front:
    """Keeps which session has which id and child, and which exchange waits on which stream."""

    def __init__(self, core: Core, pool: Pool, prober: Prober, new_id: Callable[[], str]) -> None:
        self.core = core
        self.limits = core.limits
        self.pool = pool
        self.prober = prober
        self._new_id = new_id
        self.sessions: dict[str, Session] = {}
        self.by_child: dict[int, Session] = {}
        self.streams: dict[int, tuple[Session | None, Stream]] = {}  # by exchange

    def request(self, exchange: int, head: Head, body: bytes, now: float) -> None:
        if head.method == "POST":
            self._post(exchange, head, body, now)
        elif head.method == "GET":
            self._get(exchange, head, now)
        else:
            self._delete(exchange, head, now)

    def _post(self, exchange: int, head: Head, body: bytes, now: float) -> None:
        try:
            text = body.decode("utf-8").lstrip("\ufeff")
            found = parse(text)
        except (UnicodeDecodeError, NotJSON) as exc:
            why = "the body is not UTF-8" if isinstance(exc, UnicodeDecodeError) else str(exc)
            self.refuse(exchange, Refusal(400, PARSE_ERROR, "the body is not JSON: " + why))
            return
        batch = found if isinstance(found, list) else [found]
        sid = head.headers.get("mcp-session-id")
        if not batch or any(m.kind == "other" or m.duplicate for m in batch):
            self.refuse(exchange, Refusal(400, INVALID_REQUEST, "the body is no JSON-RPC message"))
        elif sid is not None:
            self._post_session(exchange, head, sid, batch, isinstance(found, list), now)
        elif len(batch) != 1 or isinstance(found, list):
            self.refuse(exchange, Refusal(400, INVALID_REQUEST, "a batch needs a session"))
        elif is_modern(head, batch[0]):
            self._post_modern(exchange, head, batch[0], now)
        elif batch[0].method == "initialize" and batch[0].kind == "request":
            self._initialize(exchange, head, batch[0], now)
        else:
            self.refuse(
                exchange,
                Refusal(400, INVALID_REQUEST, "Mcp-Session-Id is missing; a session begins with initialize"),
                batch[0].raw_id if batch[0].kind == "request" else None,
            )

    def _post_session(
        self, exchange: int, head: Head, sid: str, batch: list[Message], many: bool, now: float
    ) -> None:
        session = self._session(exchange, head, sid, batch[0].raw_id if batch[0].kind == "request" else None)
        if session is None:
            return
        if many and session.version != "2025-03-26":
            refusal = Refusal(400, INVALID_REQUEST, "batches exist only in protocol 2025-03-26")
            self.refuse(exchange, refusal)
            return
        asks = [m for m in batch if m.kind == "request"]
        for message in batch:
            if message.kind != "request":
                session.other(message, now)
        if not asks:
            self.core.out.append(do.Respond(exchange, 202, [], b""))
            return
        sse, json = accepts(head, "text/event-stream"), accepts(head, "application/json")
        stream = session.new_stream(exchange, now, sse, json and not many)
        self.streams[exchange] = (session, stream)
        stream.pending = 1 if many else 0  # held until the whole batch has been asked
        for message in asks:
            session.request(stream, message, now)
        if many:
            stream.pending -= 1
            if stream.pending == 0 and not stream.done:
                stream.finish()

    def _initialize(self, exchange: int, head: Head, message: Message, now: float) -> None:
        if not self._make_room(now):
            refusal = Refusal(503, BRIDGE_ERROR, "too many sessions are busy", (("retry-after", "5"),))
            self.refuse(exchange, refusal, message.raw_id)
            return
        channel = self.prober.take(now)
        second_hand = channel is not None
        if channel is None:
            channel = self.core.spawn(now, False)
        session = Session(self.core, self._new_id(), channel, now, second_hand)
        self.sessions[session.sid] = session
        self.by_child[channel.child] = session
        stream = session.new_stream(
            exchange, now, accepts(head, "text/event-stream"), accepts(head, "application/json")
        )
        self.streams[exchange] = (session, stream)
        session.open(stream, message, now)

    def _post_modern(self, exchange: int, head: Head, message: Message, now: float) -> None:
        if message.kind == "notification":
            self.core.out.append(do.Respond(exchange, 202, [], b""))
            return
        if message.kind != "request":
            self.refuse(exchange, Refusal(400, INVALID_REQUEST, "the body must be one request"))
            return
        refusal = check_modern(head, message) or self.pool.params.refuse(head, message)
        if refusal is not None:
            self.refuse(exchange, refusal, message.raw_id)
            return
        sse, json = accepts(head, "text/event-stream"), accepts(head, "application/json")
        listens = message.method == "subscriptions/listen"
        if listens and not sse:
            self.refuse(exchange, Refusal(406, INVALID_REQUEST, "Accept must name text/event-stream"), message.raw_id)
            return
        stream = Stream(
            self.core.out, self.limits, self.core.counters, exchange, now,
            accepts_sse=sse, accepts_json=json, modern=True,
        )  # fmt: skip
        self.streams[exchange] = (None, stream)
        if self.core.facts.modern is None:
            self.prober.hold(stream, message, now)
        else:
            self.pool.request(stream, message, now)

    def _get(self, exchange: int, head: Head, now: float) -> None:
        sid = head.headers.get("mcp-session-id")
        if sid is None:
            refusal = Refusal(405, INVALID_REQUEST, "no stream without a session", (("allow", "POST"),))
            self.refuse(exchange, refusal)
            return
        session = self._session(exchange, head, sid, None)
        if session is None:
            return
        session.last_used = now
        last = head.headers.get("last-event-id")
        if last is None:
            stream: Stream | None = session.get
            after = None
        else:
            number, _, seq = last.partition("-")
            if not (number.isdigit() and seq.isdigit()):
                self.refuse(exchange, Refusal(400, INVALID_REQUEST, "no such event: Last-Event-ID"))
                return
            after = int(seq)
            stream = session.get if number == "0" else session.streams.get(int(number))
            if stream is None:
                session.replay(exchange, int(number), after)
                return
        assert stream is not None
        if stream.exchange is not None:
            self.streams.pop(stream.exchange, None)
        self.streams[exchange] = (session, stream)
        stream.attach(exchange, now, after)

    def _delete(self, exchange: int, head: Head, now: float) -> None:
        sid = head.headers.get("mcp-session-id")
        if sid is None:
            refusal = Refusal(405, INVALID_REQUEST, "no session to end", (("allow", "POST"),))
            self.refuse(exchange, refusal)
            return
        session = self._session(exchange, head, sid, None)
        if session is not None:
            session.close("the client ended it", now)
            self.drop(session)
            self.core.out.append(do.Respond(exchange, 200, [JSON], b"{}"))

    def _session(self, exchange: int, head: Head, sid: str, raw_id: str | None) -> Session | None:
        session = self.sessions.get(sid)
        if "mcp-session-id" in head.repeated:
            refusal = Refusal(400, INVALID_REQUEST, "mcp-session-id header appears more than once")
        elif session is None or not session.is_open or session.closed:
            refusal = Refusal(404, -32001, "Session not found: initialize again")
        else:
            version = head.headers.get("mcp-protocol-version")
            if version is None or version == session.version or version in LEGACY_VERSIONS:
                return session
            refusal = Refusal(400, INVALID_REQUEST, "MCP-Protocol-Version is not the one of this session")
        self.refuse(exchange, refusal, raw_id)
        return None

    def refuse(self, exchange: int, refusal: Refusal, raw_id: str | None = None) -> None:
        self.core.counters.refused += 1
        text = error_text(raw_id, refusal.code, refusal.message, refusal.data)
        headers = [JSON, *refusal.headers]
        self.core.out.append(do.Respond(exchange, refusal.status, headers, text.encode()))

    def _make_room(self, now: float) -> bool:
        while len(self.sessions) >= self.limits.sessions:
            idle = [s for s in self.sessions.values() if not s.pending()]
            if not idle:
                return False
            oldest = min(idle, key=lambda s: (s.get.exchange is not None, s.last_used))
            self.core.counters.evicted += 1
            self.core.log("session ended: the limit of sessions is reached and it was the idlest")
            oldest.close("the limit of sessions is reached", now)
            self.drop(oldest)
        return True

    def drop(self, session: Session) -> None:
        self.sessions.pop(session.sid, None)
        self.by_child.pop(session.channel.child, None)
