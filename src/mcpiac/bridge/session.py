"""One session of the handshake era: one client, one child, from `initialize` to its end.

opening --answer--> open --DELETE, idle, child ended--> (gone: 404)
opening --error--> asks the child `server/discover`: a server of 2026-07-28 only is adapted to,
                   any other gets its own error delivered and is ended
opening --error or end, and the child was second-hand--> once more with a fresh child
"""

from __future__ import annotations

from . import adapt, sse
from . import commands as do
from .channel import Answer, Ask, Broken, Call, Channel, Event, Note, Stray
from .core import Core, Ended
from .gate import BRIDGE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, TIME_LIMIT, error_text
from .jsonscan import Message
from .stream import EventStore, Stream

_FOR_GET = frozenset(
    (
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    )
)
_RESUMABLE_FROM = "2025-11-25"
_PROBE_ID = '"mcpiac-bridge-discover"'


class Session:
    def __init__(self, core: Core, sid: str, channel: Channel, now: float, second_hand: bool) -> None:
        self.core = core
        self.sid = sid
        self.channel = channel
        self.second_hand = second_hand
        self.version: str | None = None
        self.is_open = False
        self.closed = False
        self.last_used = now
        self.store = EventStore(core.limits)
        self.streams: dict[int, Stream] = {}
        self._numbers = 0
        self._init: Message | None = None
        self._opening: Call | None = None  # the call of initialize until it is answered
        self._refused: str | None = None  # the server's own error to initialize
        self.wants_fresh_child = False
        self._envelope: adapt.Envelope | None = None
        self.get = Stream(core.out, core.limits, core.counters, None, now, store=self.store)
        self.get.standing = True

    # from the client

    def open(self, stream: Stream, message: Message, now: float) -> None:
        self._init = message
        self._opening = Call(message.raw_id or "null", "initialize", stream)
        stream.opens = self.sid
        self._pend(stream)
        self.core.counters.calls += 1
        if self.core.facts.modern and self.core.facts.legacy is False:
            self._ask_discover(now)
        else:
            self._ask_initialize(now)

    def _ask_initialize(self, now: float) -> None:
        assert self._opening is not None
        assert self._init is not None
        text = self.channel.send(self._opening, self._init, self.core.limits.start, now)
        self.core.write(self.channel, text)

    def pending(self) -> bool:
        return self._opening is not None or bool(self.channel.calls)

    def new_stream(self, exchange: int, now: float, sse: bool, json: bool) -> Stream:
        self._numbers += 1
        stream = Stream(
            self.core.out, self.core.limits, self.core.counters, exchange, now,
            number=self._numbers, store=self.store, accepts_sse=sse, accepts_json=json,
        )  # fmt: skip
        stream.primed = self.version is not None and self.version >= _RESUMABLE_FROM
        stream.spill = self._spill
        return stream

    def _spill(self, texts: list[str]) -> None:
        """Notifications whose call is answered by JSON go to the GET stream."""
        for text in texts:
            self.get.note(text, self.last_used)

    def request(self, stream: Stream, message: Message, now: float) -> None:
        self.last_used = now
        method = message.method or ""
        raw_id = message.raw_id or "null"
        key = message.key
        if key is None or self.channel.taken(key):
            stream.pending += 1
            text = error_text(raw_id, INVALID_REQUEST, "a call with this id is still waiting for its answer")
            stream.answer(text, now, 400)
            return
        if self.channel.full:
            stream.pending += 1
            text = error_text(raw_id, BRIDGE_ERROR, "the server does not read its input; try again later")
            stream.answer(text, now, 503)
            return
        if self._envelope is not None and self._answered_here(stream, message, method, now):
            return
        call = Call(raw_id, method, stream)
        self._pend(stream)
        self.core.counters.calls += 1
        text = self.channel.send(call, message, self.core.limits.call, now)
        self.core.write(self.channel, text if self._envelope is None else self._envelope.around(message))

    def other(self, message: Message, now: float) -> None:
        """A notification, or the client's answer to a request of the server's."""
        self.last_used = now
        if message.method == "notifications/cancelled":
            raw = message.slice(message.params().get("requestId"))
            call = self.channel.call_of(raw)
            if call is not None and call.cancelled_at is None:
                call.cancelled_at = now
        if self._envelope is not None and message.method not in adapt.NOTIFICATIONS_KEPT:
            return
        if self.channel.full:
            self.core.counters.dropped += 1
            return
        if message.kind == "notification":
            self.channel.unanswerable = True
        self.core.write(self.channel, message.whole)

    def _pend(self, stream: Stream) -> None:
        stream.pending += 1
        if stream.number:
            self.streams[stream.number] = stream

    def _answered_here(self, stream: Stream, message: Message, method: str, now: float) -> bool:
        """What 2026-07-28 no longer has and an older client may still ask."""
        assert self._envelope is not None
        raw_id = message.raw_id or "null"
        if method == "logging/setLevel":
            self._envelope.level = message.slice(message.params().get("level"))
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            stream.pending += 1
            stream.answer(error_text(raw_id, METHOD_NOT_FOUND, "not offered by a server of 2026-07-28"), now)
            return True
        elif method != "ping":
            return False
        stream.pending += 1
        stream.answer(f'{{"jsonrpc":"2.0","id":{raw_id},"result":{{}}}}', now)
        return True

    def replay(self, exchange: int, number: int, after: int) -> None:
        """A stream that is complete: what the client has not seen of it."""
        self.core.out.append(do.Begin(exchange, list(sse.HEADERS)))
        for _, data in self.store.after(number, after):
            self.core.out.append(do.Data(exchange, data))
        self.core.out.append(do.Finish(exchange))

    def slow(self) -> bool:
        return any(s.blocked_since is not None for s in self.streams.values())

    def waiting_bytes(self) -> int:
        """Bytes of answers that wait for slow clients."""
        return sum(s.backlog_bytes for s in self.streams.values())

    # from the child

    def event(self, event: Event, now: float) -> None:
        if isinstance(event, Answer):
            if event.call.purpose == "discover":
                self._discovered(event, now)
            elif event.call is self._opening:
                self._initialized(event, now)
            else:
                self._deliver(event.call, event.text, now)
        elif isinstance(event, Note):
            if event.call is not None and event.call.deadline is not None:
                event.call.deadline = now + self.core.limits.call
            self._route(event.text, event.method, event.call, now, True)
        elif isinstance(event, Ask):
            if self._nobody_listens():
                raw_id = event.message.raw_id or "null"
                text = error_text(raw_id, BRIDGE_ERROR, "no client listens")
                self.core.write(self.channel, text)
                return
            self._route(event.text, event.message.method or "", None, now, False)
        elif isinstance(event, Broken):
            text = error_text(event.call.raw_id, BRIDGE_ERROR, "the server's answer is broken: " + event.why)
            self.core.counters.errors += 1
            self._deliver(event.call, text, now)
        elif isinstance(event, Stray):
            self.core.counters.strays += 1
        else:
            self.core.noise(self.channel, event)

    def ended(self, ended: Ended, now: float) -> bool:
        """The child is gone. True: the session goes on with another child."""
        if self._opening is not None and self.second_hand:
            return True
        calls = self.channel.take_all()
        if self._opening is not None and self._opening not in calls:
            calls.append(self._opening)
        self._opening = None
        self.closed = True
        self.core.fail(calls, ended, now)
        self._finish_streams()
        return False

    def restart(self, channel: Channel, now: float) -> None:
        """`initialize` once more, to a fresh child."""
        self.channel.take_all()
        self.channel = channel
        self.second_hand = self.wants_fresh_child = False
        self._ask_initialize(now)

    def close(self, why: str, now: float) -> None:
        """Ends the session: pending calls fail, the child is ended."""
        self.closed = True
        calls = self.channel.take_all()
        if self._opening is not None and self._opening not in calls:
            calls.append(self._opening)
        self._opening = None
        for call in calls:
            if call.stream is not None and not call.purpose:
                call.stream.answer(error_text(call.raw_id, BRIDGE_ERROR, "the session ended: " + why), now)
        self._finish_streams()
        self.core.end(self.channel, why)

    def tick(self, now: float) -> None:
        limits = self.core.limits
        for call in list(self.channel.calls.values()):
            if call.deadline is not None and now >= call.deadline:
                self.channel.forget(call)
                self._time_limit(call, now)
            elif call.cancelled_at is not None and now - call.cancelled_at >= limits.cancel:
                self.channel.forget(call)
                text = error_text(call.raw_id, BRIDGE_ERROR, "cancelled by the client")
                self._deliver(call, text, now)
        for event in self.channel.doubtful(now):
            self.event(event, now)
        for stream in list(self.streams.values()):
            stream.keepalive(now)
        self.get.keepalive(now)

    def _time_limit(self, call: Call, now: float) -> None:
        self.core.counters.timeouts += 1
        if call.purpose == "discover":
            self._give_refusal(now)
            return
        opening = call is self._opening
        limit = self.core.limits.start if opening else self.core.limits.call
        text = error_text(call.raw_id, TIME_LIMIT, f"no answer from the server within {limit:g} s")
        self._deliver(call, text, now)
        if opening:
            self._opening = None
            self.close("no answer to initialize", now)
        else:
            self.core.write(self.channel, adapt.cancelled(call.raw_id, "time limit"))

    # inside

    def _deliver(self, call: Call, text: str, now: float) -> None:
        stream = call.stream
        if stream is None:
            return
        self.core.counters.answers += 1
        stream.answer(text, now)
        if stream.done:
            self.streams.pop(stream.number, None)

    def _initialized(self, answer: Answer, now: float) -> None:
        if answer.is_error and self.second_hand:
            # it may be the probe that spoilt this child: the client's initialize gets a fresh one
            self.wants_fresh_child = True
        elif answer.is_error:
            self._refused = answer.text
            if self.core.facts.modern is not False:
                self._ask_discover(now)
            else:
                self._give_refusal(now)
        else:
            self.core.facts.legacy = True
            result = answer.message.object_at(answer.message.spans.get("result"))
            self._opened(answer.message.string_at(result.get("protocolVersion")), answer.text, now)

    def _opened(self, version: str | None, text: str, now: float) -> None:
        call, self._opening = self._opening, None
        assert call is not None
        assert call.stream is not None
        self.is_open = True
        self.version = version or "2025-03-26"
        self.get.primed = self.version >= _RESUMABLE_FROM
        self.core.counters.sessions += 1
        call.stream.opened = True
        self._deliver(call, text, now)

    def _ask_discover(self, now: float) -> None:
        call = Call(_PROBE_ID, "server/discover", None, "discover")
        self.channel.own(call, min(self.core.limits.probe, self.core.limits.start), now)
        self.core.write(self.channel, adapt.discover_request(_PROBE_ID, self.core.facts.modern_version))

    def _discovered(self, answer: Answer, now: float) -> None:
        versions = adapt.modern_versions(answer.message)
        assert self._init is not None
        if answer.is_error or not versions:
            self._give_refusal(now)
            return
        self.core.facts.modern = True
        self.core.facts.legacy = False
        self.core.facts.modern_version = versions[0] if adapt.MODERN not in versions else adapt.MODERN
        self._envelope = adapt.Envelope(self._init, self.core.facts.modern_version)
        requested = self._init.string_at(self._init.params().get("protocolVersion"))
        text = adapt.initialize_result(self._init.raw_id or "null", answer.message, requested)
        self._opened(requested, text, now)

    def _give_refusal(self, now: float) -> None:
        """The server answered initialize with an error and speaks no other era: that error it is."""
        call, self._opening = self._opening, None
        if call is not None:
            text = self._refused or error_text(
                call.raw_id, BRIDGE_ERROR, "the server answers neither initialize nor server/discover"
            )
            self._deliver(call, text, now)
        self.close("initialize failed", now)

    def _nobody_listens(self) -> bool:
        return self._place("") is self.get and self.get.waiting >= self.core.limits.queue

    def _place(self, method: str) -> Stream:
        """The stream for a message that names no call: related to a call in hand, if there is one."""
        if method in _FOR_GET and self.get.exchange is not None:
            return self.get
        for number in reversed(list(self.streams)):
            stream = self.streams[number]
            if stream.accepts_sse and not stream.done and stream.exchange is not None:
                return stream
        return self.get

    def _route(self, text: str, method: str, call: Call | None, now: float, droppable: bool) -> None:
        stream = call.stream if call is not None else None
        if stream is None or not stream.accepts_sse or stream.done:
            stream = self._place(method)
        stream.note(text, now, droppable)

    def _finish_streams(self) -> None:
        for stream in [*self.streams.values(), self.get]:
            stream.finish()
        self.streams.clear()
