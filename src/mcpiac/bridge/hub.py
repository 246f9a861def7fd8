"""The core of the bridge: HTTP requests and children's output in, commands out, time passed in.

Every public method is an event and returns the commands that follow from it, in order. `now` is the
bridge's own time (`clock.py`): it does not move while the bridge is frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from . import commands as do
from .channel import Event
from .core import Core, Ended
from .gate import (
    BRIDGE_ERROR,
    INVALID_REQUEST,
    LEGACY_VERSIONS,
    PARSE_ERROR,
    Head,
    Refusal,
    Rules,
    accepts,
    check_modern,
    error_text,
    is_modern,
)
from .health import page
from .jsonscan import Message, NotJSON, parse
from .limits import Limits
from .pool import Pool
from .probe import Prober
from .session import Session
from .stream import Stream

_JSON = ("content-type", "application/json")


class Hub:
    def __init__(self, limits: Limits, rules: Rules, new_id: Callable[[], str]) -> None:
        self.core = Core(limits)
        self.limits = limits
        self.rules = rules
        self.sessions: dict[str, Session] = {}
        self.pool = Pool(self.core)
        self.prober = Prober(self.core)
        self._new_id = new_id
        self._by_child: dict[int, Session] = {}
        self._streams: dict[int, tuple[Session | None, Stream]] = {}  # by exchange
        self._living: set[int] = set()  # children that have not ended
        self._stop_at: float | None = None
        self._stopped = False  # everything has been told to end
        self._quit = False  # and the edge to quit

    # events: HTTP

    def request(self, exchange: int, head: Head, body: bytes, now: float) -> list[do.Command]:
        """A whole HTTP request that `Rules.refuse` lets pass."""
        if head.path == self.rules.health_path:
            self._health(exchange, head, now)
        elif self._stop_at is not None:
            self._refuse(exchange, Refusal(503, BRIDGE_ERROR, "the bridge is stopping"))
        elif head.method == "POST":
            self._post(exchange, head, body, now)
        elif head.method == "GET":
            self._get(exchange, head, now)
        else:
            self._delete(exchange, head, now)
        return self._flush(now)

    def gone(self, exchange: int, now: float) -> list[do.Command]:
        """The client of an exchange closed its connection before the answer was complete."""
        self.prober.gone(exchange)
        session, stream = self._streams.pop(exchange, (None, None))
        if stream is None or stream.exchange != exchange:
            return self._flush(now)
        stream.gone()
        if session is None:
            stream.done = True
            self.pool.gone(stream, now)
        elif not session.is_open and not session.closed:
            session.close("the client left during initialize", now)
            self._drop(session)
        return self._flush(now)

    def blocked(self, exchange: int, on: bool, now: float) -> list[do.Command]:
        """The client of an exchange reads too slowly, or has caught up."""
        session, stream = self._streams.get(exchange, (None, None))
        if stream is not None and stream.exchange == exchange:
            stream.blocked(on, now)
            if session is not None:
                self._hold(session)
        return self._flush(now)

    # events: children

    def output(self, child: int, data: bytes, now: float) -> list[do.Command]:
        channel = self.core.channels.get(child)
        if channel is None:
            return []
        self.core.counters.bytes_out += len(data)
        self._events(child, channel.receive(data, now), now)
        return self._flush(now)

    def ended(self, child: int, ended: Ended, now: float) -> list[do.Command]:
        """A child is gone, or its stdout is closed: nothing more can come from it."""
        channel = self.core.channels.get(child)
        if channel is None:
            return self._flush(now)
        self._events(child, channel.end(now), now)
        if self.core.channels.pop(child, None) is None:
            return self._flush(now)
        self.core.out.append(do.End(child, "ended"))
        if not channel.heard:
            self.core.facts.failure = ended
        if channel.calls or not channel.heard:
            self.core.counters.crashes += 1
        self.core.log(f"child {child}: {ended.status}")
        session = self._by_child.pop(child, None)
        if session is not None:
            if session.ended(ended, now):
                self._restart(session, now)
            else:
                self._drop(session)
        elif self.pool.owns(channel):
            self.pool.ended(channel, ended, now)
        self.prober.ended(channel, ended, now)
        return self._flush(now)

    def reaped(self, child: int, now: float) -> list[do.Command]:
        """A child and all that it started are gone."""
        self._living.discard(child)
        return self._flush(now)

    def full(self, child: int, on: bool, now: float) -> list[do.Command]:
        """A child does not read its stdin (on), or has caught up."""
        channel = self.core.channels.get(child)
        if channel is not None:
            channel.full = on
        return self._flush(now)

    # events: time

    def tick(self, now: float) -> list[do.Command]:
        """About once a second."""
        for session in list(self.sessions.values()):
            session.tick(now)
            idle = now - max(session.last_used, session.channel.last_used)
            unused = not session.closed and not session.pending() and session.get.exchange is None
            if unused and idle >= self.limits.idle:
                self.core.log("session ended: idle")
                session.close("idle", now)
            if session.closed:
                self._drop(session)
        self.pool.tick(now)
        self.prober.tick(now)
        for exchange, (_, stream) in list(self._streams.items()):
            if stream.blocked_since is not None and now - stream.blocked_since >= self.limits.client:
                self.core.out.append(do.Abort(exchange))
        if self._stop_at is not None and now >= self._stop_at and not self._stopped:
            self._stop_now(now)
        return self._flush(now)

    def stop(self, now: float) -> list[do.Command]:
        """TERM: answer what is pending within the grace time, then end."""
        if self._stop_at is not None:
            if not self._stopped:
                self._stop_now(now)
        else:
            self._stop_at = now + self.limits.grace
            for session in self.sessions.values():
                session.get.finish()
            self.core.log("stopping")
        return self._flush(now)

    def busy(self) -> bool:
        """Whether time matters at all."""
        return bool(self._living or self._streams or self.sessions) or self._stop_at is not None

    # HTTP

    def _post(self, exchange: int, head: Head, body: bytes, now: float) -> None:
        try:
            text = body.decode("utf-8").lstrip("\ufeff")
            found = parse(text)
        except (UnicodeDecodeError, NotJSON) as exc:
            why = "the body is not UTF-8" if isinstance(exc, UnicodeDecodeError) else str(exc)
            self._refuse(exchange, Refusal(400, PARSE_ERROR, "the body is not JSON: " + why))
            return
        batch = found if isinstance(found, list) else [found]
        sid = head.headers.get("mcp-session-id")
        if not batch or any(m.kind == "other" or m.duplicate for m in batch):
            self._refuse(exchange, Refusal(400, INVALID_REQUEST, "the body is no JSON-RPC message"))
        elif sid is not None:
            self._post_session(exchange, head, sid, batch, isinstance(found, list), now)
        elif len(batch) != 1 or isinstance(found, list):
            self._refuse(exchange, Refusal(400, INVALID_REQUEST, "a batch needs a session"))
        elif is_modern(head, batch[0]):
            self._post_modern(exchange, head, batch[0], now)
        elif batch[0].method == "initialize" and batch[0].kind == "request":
            self._initialize(exchange, head, batch[0], now)
        else:
            self._refuse(
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
            self._refuse(exchange, refusal)
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
        self._streams[exchange] = (session, stream)
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
            self._refuse(exchange, refusal, message.raw_id)
            return
        channel = self.prober.take(now)
        second_hand = channel is not None
        if channel is None:
            channel = self.core.spawn(now, False)
        session = Session(self.core, self._new_id(), channel, now, second_hand)
        self.sessions[session.sid] = session
        self._by_child[channel.child] = session
        stream = session.new_stream(
            exchange, now, accepts(head, "text/event-stream"), accepts(head, "application/json")
        )
        self._streams[exchange] = (session, stream)
        session.open(stream, message, now)

    def _post_modern(self, exchange: int, head: Head, message: Message, now: float) -> None:
        if message.kind == "notification":
            self.core.out.append(do.Respond(exchange, 202, [], b""))
            return
        if message.kind != "request":
            self._refuse(exchange, Refusal(400, INVALID_REQUEST, "the body must be one request"))
            return
        refusal = check_modern(head, message) or self.pool.params.refuse(head, message)
        if refusal is not None:
            self._refuse(exchange, refusal, message.raw_id)
            return
        sse, json = accepts(head, "text/event-stream"), accepts(head, "application/json")
        listens = message.method == "subscriptions/listen"
        if listens and not sse:
            self._refuse(
                exchange, Refusal(406, INVALID_REQUEST, "Accept must name text/event-stream"), message.raw_id
            )
            return
        stream = Stream(
            self.core.out, self.limits, self.core.counters, exchange, now,
            accepts_sse=sse, accepts_json=json, modern=True,
        )  # fmt: skip
        self._streams[exchange] = (None, stream)
        if self.core.facts.modern is None:
            self.prober.hold(stream, message, now)
        else:
            self.pool.request(stream, message, now)

    def _get(self, exchange: int, head: Head, now: float) -> None:
        sid = head.headers.get("mcp-session-id")
        if sid is None:
            refusal = Refusal(405, INVALID_REQUEST, "no stream without a session", (("allow", "POST"),))
            self._refuse(exchange, refusal)
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
                self._refuse(exchange, Refusal(400, INVALID_REQUEST, "no such event: Last-Event-ID"))
                return
            after = int(seq)
            stream = session.get if number == "0" else session.streams.get(int(number))
            if stream is None:
                session.replay(exchange, int(number), after)
                return
        assert stream is not None
        if stream.exchange is not None:
            self._streams.pop(stream.exchange, None)
        self._streams[exchange] = (session, stream)
        stream.attach(exchange, now, after)

    def _delete(self, exchange: int, head: Head, now: float) -> None:
        sid = head.headers.get("mcp-session-id")
        if sid is None:
            refusal = Refusal(405, INVALID_REQUEST, "no session to end", (("allow", "POST"),))
            self._refuse(exchange, refusal)
            return
        session = self._session(exchange, head, sid, None)
        if session is not None:
            session.close("the client ended it", now)
            self._drop(session)
            self.core.out.append(do.Respond(exchange, 200, [_JSON], b"{}"))

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
        self._refuse(exchange, refusal, raw_id)
        return None

    def _refuse(self, exchange: int, refusal: Refusal, raw_id: str | None = None) -> None:
        self.core.counters.refused += 1
        text = error_text(raw_id, refusal.code, refusal.message, refusal.data)
        headers = [_JSON, *refusal.headers]
        self.core.out.append(do.Respond(exchange, refusal.status, headers, text.encode()))

    def _health(self, exchange: int, head: Head, now: float) -> None:
        wants_start = "start=1" in head.query.split("&")
        started = self.core.facts.started and self.core.facts.failure is None
        if wants_start and not started and self._stop_at is None:
            self.prober.start_for_health(exchange, now)
        else:
            self._answer_health(exchange)

    def _answer_health(self, exchange: int) -> None:
        status, body = page(self.core, len(self.sessions), len(self._living), self.pool, self._stop_at is not None)
        self.core.out.append(do.Respond(exchange, status, [_JSON], body))

    # children

    def _events(self, child: int, events: Iterable[Event], now: float) -> None:
        for event in events:
            channel = self.core.channels.get(child)
            if channel is None:
                return
            self.core.counters.repaired += channel.repairs()
            if channel.heard and not self.core.facts.started:
                self.core.facts.started = True
            if channel.heard:
                self.core.facts.failure = None
            if self.prober.event(channel, event, now):
                continue
            session = self._by_child.get(child)
            if session is None:
                if self.pool.owns(channel):
                    self.pool.event(channel, event, now)
                continue
            session.event(event, now)
            if session.closed:
                self._drop(session)
            elif session.wants_fresh_child:
                self._by_child.pop(child, None)
                self.core.end(channel, "a fresh child for initialize")
                self._restart(session, now)
            else:
                self._hold(session)

    def _restart(self, session: Session, now: float) -> None:
        channel = self.core.spawn(now, False)
        self._by_child[channel.child] = session
        session.restart(channel, now)

    def _hold(self, session: Session) -> None:
        """Leaves a child's output unread while too much of it waits for slow clients."""
        channel = session.channel
        if not channel.read_paused and not session.slow():
            return
        waits = session.waiting_bytes()
        if not channel.read_paused and waits > self.limits.hold_bytes:
            channel.read_paused = True
            self.core.out.append(do.Reading(channel.child, False))
        elif channel.read_paused and waits <= self.limits.hold_bytes // 2:
            channel.read_paused = False
            self.core.out.append(do.Reading(channel.child, True))

    def _make_room(self, now: float) -> bool:
        while len(self.sessions) >= self.limits.sessions:
            idle = [s for s in self.sessions.values() if not s.pending()]
            if not idle:
                return False
            oldest = min(idle, key=lambda s: (s.get.exchange is not None, s.last_used))
            self.core.counters.evicted += 1
            self.core.log("session ended: the limit of sessions is reached and it was the idlest")
            oldest.close("the limit of sessions is reached", now)
            self._drop(oldest)
        return True

    def _drop(self, session: Session) -> None:
        self.sessions.pop(session.sid, None)
        self._by_child.pop(session.channel.child, None)

    def _pending(self) -> bool:
        return self.pool.pending() or self.prober.pending() or any(s.pending() for s in self.sessions.values())

    def _stop_now(self, now: float) -> None:
        for session in list(self.sessions.values()):
            session.close("the bridge is stopping", now)
            self._drop(session)
        self.prober.fail_all("the bridge is stopping", now)
        self.pool.fail_all("the bridge is stopping", now)
        for channel in list(self.core.channels.values()):
            self.core.end(channel, "the bridge is stopping")
        self._stopped = True

    def _flush(self, now: float) -> list[do.Command]:
        """The commands gathered; settles what follows from them."""
        adopted = self.prober.adopted()
        if adopted is not None:
            self.pool.adopt(adopted)
        for stream, message in self.prober.ready():
            if not self.core.facts.modern and message.method != "server/discover":
                self.pool.use_spare(self.prober.take_spare(), now)
            self.pool.request(stream, message, now)
        for exchange in self.prober.healthy():
            self._answer_health(exchange)
        if self._stop_at is not None and not self._stopped and not self._pending():
            self._stop_now(now)
        out = self.core.out
        for command in out:
            if isinstance(command, do.Spawn):
                self._living.add(command.child)
            elif isinstance(command, do.End):
                self.core.channels.pop(command.child, None)
            elif isinstance(command, (do.Respond, do.Finish, do.Abort)):
                self._streams.pop(command.exchange, None)
        commands = list(out)
        out.clear()
        if self._stopped and not self._living and not self._quit:
            self._quit = True
            commands.append(do.Quit())
        return commands
