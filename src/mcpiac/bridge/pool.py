"""Clients of 2026-07-28: requests without a session, on as few children as that era allows.

A server of 2026-07-28 gets them on one shared child. A request that asks for log messages gets a
child to itself while it runs, since a log message does not say which request it belongs to. An older
server gets them on one child that the bridge itself has initialized, unless the client asks
`server/discover`: that is refused, so that a client of both eras falls back to the full handshake.
"""

from __future__ import annotations

from . import adapt
from .channel import Answer, Ask, Broken, Call, Channel, Event, Note, Stray
from .core import Core, Ended
from .gate import (
    BRIDGE_ERROR,
    META,
    METHOD_NOT_FOUND,
    STATUS_OF_CODE,
    TIME_LIMIT,
    error_text,
    unsupported_version,
)
from .jsonscan import Message
from .params import ParamHeaders
from .stream import Stream

_INIT_ID = '"mcpiac-bridge-initialize"'


class Pool:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.shared: Channel | None = None
        self.alone: dict[int, bool] = {}  # child that serves one request at a time -> whether it is busy
        self._unready: list[tuple[Call, Message]] = []  # until an older child is initialized
        self._initializing = False
        self.params = ParamHeaders()

    def owns(self, channel: Channel) -> bool:
        return channel is self.shared or channel.child in self.alone

    def adopt(self, channel: Channel) -> None:
        """A probed child that speaks 2026-07-28 becomes the shared one."""
        if self.shared is None:
            self.shared = channel
        else:
            self.alone[channel.child] = False

    def pending(self) -> bool:
        if self._unready:
            return True
        return any(self.owns(c) and c.calls for c in self.core.channels.values())

    def children(self) -> int:
        return len(self.alone) + (self.shared is not None)

    # from the client

    def request(self, stream: Stream, message: Message, now: float) -> None:
        raw_id = message.raw_id or "null"
        method = message.method or ""
        call = Call(raw_id, method, stream)
        stream.pending += 1
        if self.core.facts.modern:
            self._send(self._child_for(message, now), call, message, now)
        elif method == "server/discover":
            requested = message.string_at(message.meta().get(META + "protocolVersion"))
            refusal = unsupported_version(requested)
            text = error_text(raw_id, refusal.code, refusal.message, refusal.data)
            stream.answer(text, now, refusal.status)
        else:
            self._to_older(call, message, now)

    def _child_for(self, message: Message, now: float) -> Channel:
        if META + "logLevel" in message.meta():
            for child, busy in self.alone.items():
                if not busy:
                    self.alone[child] = True
                    return self.core.channels[child]
            if self.core.facts.started and len(self.alone) < self.core.limits.sessions:
                channel = self.core.spawn(now, True)
                self.alone[channel.child] = True
                return channel
        if self.shared is None:
            self.shared = self.core.spawn(now, True)
        return self.shared

    def _send(self, channel: Channel, call: Call, message: Message, now: float) -> None:
        if channel.full:
            text = error_text(call.raw_id, BRIDGE_ERROR, "the server does not read its input; try later")
            self._answer(call, text, now, 503)
            return
        listens = call.method == "subscriptions/listen"
        text = channel.send(call, message, 0 if listens else self.core.limits.call, now)
        self.core.counters.calls += 1
        self.core.write(channel, text)

    def _to_older(self, call: Call, message: Message, now: float) -> None:
        if self.shared is None:
            self.shared = self.core.spawn(now, True)
            self.initialize(now)
        if self._initializing:
            self._unready.append((call, message))
        else:
            self._send(self.shared, call, message, now)

    def use_spare(self, channel: Channel | None, now: float) -> None:
        """A probed older child becomes the shared one."""
        if channel is None:
            return
        if self.shared is not None:
            self.core.end(channel, "spare")
            return
        channel.shared = True
        self.shared = channel
        self.initialize(now)

    def initialize(self, now: float) -> None:
        """The bridge's own handshake with an older child."""
        assert self.shared is not None
        self._initializing = True
        self.shared.own(Call(_INIT_ID, "initialize", None, "initialize"), self.core.limits.start, now)
        self.core.write(self.shared, adapt.initialize_request(_INIT_ID))

    def gone(self, stream: Stream, now: float) -> None:
        """The client closed its stream: in this era that cancels the request."""
        self._unready = [(c, m) for c, m in self._unready if c.stream is not stream]
        for channel in self.core.channels.values():
            if not self.owns(channel):
                continue
            for call in [c for c in channel.calls.values() if c.stream is stream]:
                channel.forget(call)
                self._free(channel)
                if not channel.full:
                    self.core.write(channel, adapt.cancelled(str(call.key), "the client closed the stream"))

    # from the child

    def event(self, channel: Channel, event: Event, now: float) -> None:
        if isinstance(event, Answer):
            if event.call.purpose == "initialize":
                self._initialized(event, now)
                return
            text = event.text
            if not self.core.facts.modern and not event.is_error:
                text = adapt.modern_result(text, event.call.method)
            if event.call.method == "tools/list":
                self.params.learn(text)
            self._free(channel)
            self._answer(event.call, text, now, _status(event))
        elif isinstance(event, Note):
            self._note(channel, event, now)
        elif isinstance(event, Ask):
            raw_id = event.message.raw_id or "null"
            if event.message.method == "ping":
                self.core.write(channel, f'{{"jsonrpc":"2.0","id":{raw_id},"result":{{}}}}')
            else:
                text = error_text(raw_id, METHOD_NOT_FOUND, "no way back to a client in this protocol era")
                self.core.write(channel, text)
        elif isinstance(event, Broken):
            self._free(channel)
            text = error_text(event.call.raw_id, BRIDGE_ERROR, "the server's answer is broken: " + event.why)
            self._answer(event.call, text, now)
        elif isinstance(event, Stray):
            self.core.counters.strays += 1
        else:
            self.core.noise(channel, event)

    def _note(self, channel: Channel, note: Note, now: float) -> None:
        call = note.call
        if call is None and channel.child in self.alone and len(channel.calls) == 1:
            call = next(iter(channel.calls.values()))
        if call is None or call.stream is None or not call.stream.accepts_sse or call.stream.done:
            self.core.counters.dropped += 1
            return
        if call.deadline is not None:
            call.deadline = now + self.core.limits.call
        call.stream.note(note.text, now)

    def ended(self, channel: Channel, ended: Ended, now: float) -> None:
        calls = channel.take_all()
        if channel is self.shared:
            self.shared = None
            if self._initializing:
                calls += [call for call, _ in self._unready]
                self._unready.clear()
                self._initializing = False
        self.alone.pop(channel.child, None)
        self.core.fail(calls, ended, now)

    def tick(self, now: float) -> None:
        for waiting, _ in self._unready:
            if waiting.stream is not None:
                waiting.stream.keepalive(now)
        for channel in list(self.core.channels.values()):
            if not self.owns(channel):
                continue
            for event in channel.doubtful(now):
                self.event(channel, event, now)
            for call in list(channel.calls.values()):
                if call.stream is not None:
                    call.stream.keepalive(now)
                if call.deadline is not None and now >= call.deadline:
                    self._time_limit(channel, call, now)
            if not channel.calls and now - channel.last_used >= self.core.limits.idle:
                self.core.end(channel, "idle")
                self.forget(channel)

    def forget(self, channel: Channel) -> None:
        """The channel is being ended: no further request goes there."""
        if channel is self.shared:
            self.shared = None
        self.alone.pop(channel.child, None)

    def fail_all(self, text: str, now: float) -> None:
        """Every pending call fails with `text`."""
        for call, _ in self._unready:
            self._answer(call, error_text(call.raw_id, BRIDGE_ERROR, text), now)
        self._unready.clear()
        for channel in self.core.channels.values():
            if self.owns(channel):
                for call in channel.take_all():
                    self._answer(call, error_text(call.raw_id, BRIDGE_ERROR, text), now)

    # inside

    def _time_limit(self, channel: Channel, call: Call, now: float) -> None:
        self.core.counters.timeouts += 1
        channel.forget(call)
        self._free(channel)
        if call.purpose == "initialize":
            ended = Ended(f"no answer to initialize within {self.core.limits.start:g} s", ())
            self.ended(channel, ended, now)
            self.core.end(channel, "no answer to initialize")
            return
        text = error_text(call.raw_id, TIME_LIMIT, f"no answer from the server within {self.core.limits.call:g} s")
        self._answer(call, text, now)
        self.core.write(channel, adapt.cancelled(str(call.key), "time limit"))

    def _answer(self, call: Call, text: str, now: float, status: int = 200) -> None:
        if call.stream is not None:
            self.core.counters.answers += 1
            call.stream.answer(text, now, status)

    def _free(self, channel: Channel) -> None:
        if channel.child in self.alone and not channel.calls:
            self.alone[channel.child] = False

    def _initialized(self, answer: Answer, now: float) -> None:
        assert self.shared is not None
        waiting, self._unready = self._unready, []
        self._initializing = False
        if answer.is_error:
            for call, _ in waiting:
                error = answer.message.raw("error")
                text = f'{{"jsonrpc":"2.0","id":{call.raw_id},"error":{error}}}'
                self._answer(call, text, now)
            channel, self.shared = self.shared, None
            self.core.end(channel, "initialize failed")
            return
        self.core.facts.legacy = True
        self.core.write(self.shared, adapt.INITIALIZED)
        for call, message in waiting:
            self._send(self.shared, call, message, now)


def _status(answer: Answer) -> int:
    if not answer.is_error:
        return 200
    error = answer.message.object_at(answer.message.spans.get("error"))
    raw = answer.message.slice(error.get("code")) or ""
    return STATUS_OF_CODE.get(int(raw), 200) if raw.lstrip("-").isdigit() and len(raw) < 10 else 200
