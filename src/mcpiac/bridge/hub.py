"""The core of the bridge: HTTP requests and children's output in, commands out, time passed in.

Every public method is an event and returns the commands that follow from it, in order. `now` is the
bridge's own time (`clock.py`): it does not move while the bridge is frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from . import commands as do
from .channel import Event
from .core import Core, Ended
from .front import JSON, Front
from .gate import BRIDGE_ERROR, Head, Refusal, Rules
from .health import page
from .limits import Limits
from .pool import Pool
from .probe import Prober
from .session import Session
from .stream import HOLD


class Hub:
    def __init__(self, limits: Limits, rules: Rules, new_id: Callable[[], str]) -> None:
        self.core = Core(limits)
        self.limits = limits
        self.rules = rules
        self.pool = Pool(self.core)
        self.prober = Prober(self.core)
        self.front = Front(self.core, self.pool, self.prober, new_id)
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
            self.front.refuse(exchange, Refusal(503, BRIDGE_ERROR, "the bridge is stopping"))
        else:
            self.front.request(exchange, head, body, now)
        return self._flush(now)

    def gone(self, exchange: int, now: float) -> list[do.Command]:
        """The client of an exchange closed its connection before the answer was complete."""
        self.prober.gone(exchange)
        session, stream = self.front.streams.pop(exchange, (None, None))
        if stream is None or stream.exchange != exchange:
            return self._flush(now)
        stream.gone()
        if session is None:
            stream.done = True
            self.pool.gone(stream, now)
        elif not session.is_open and not session.closed:
            session.close("the client left during initialize", now)
            self.front.drop(session)
        return self._flush(now)

    def blocked(self, exchange: int, on: bool, now: float) -> list[do.Command]:
        """The client of an exchange reads too slowly, or has caught up."""
        session, stream = self.front.streams.get(exchange, (None, None))
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
        session = self.front.by_child.pop(child, None)
        if session is not None:
            if session.ended(ended, now):
                self._restart(session, now)
            else:
                self.front.drop(session)
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

    def wake(self, now: float) -> list[do.Command]:
        """The moment that a `Wake` asked for."""
        for session, stream in list(self.front.streams.values()):
            if session is not None and stream.holds(now) and session.channel.reader.in_line:
                self.core.out.append(do.Wake(HOLD))  # what comes may be its answer
            else:
                stream.release(now)
        return self._flush(now)

    def tick(self, now: float) -> list[do.Command]:
        """About once a second."""
        for session in list(self.front.sessions.values()):
            session.tick(now)
            idle = now - max(session.last_used, session.channel.last_used)
            unused = not session.closed and not session.pending() and session.get.exchange is None
            if unused and idle >= self.limits.idle:
                self.core.log("session ended: idle")
                session.close("idle", now)
            if session.closed:
                self.front.drop(session)
        self.pool.tick(now)
        self.prober.tick(now)
        for exchange, (_, stream) in list(self.front.streams.items()):
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
            for session in self.front.sessions.values():
                session.get.finish()
            self.core.log("stopping")
        return self._flush(now)

    def busy(self) -> bool:
        """Whether time matters at all."""
        return bool(self._living or self.front.streams or self.front.sessions) or self._stop_at is not None

    def _health(self, exchange: int, head: Head, now: float) -> None:
        wants_start = "start=1" in head.query.split("&")
        started = self.core.facts.started and self.core.facts.failure is None
        if wants_start and not started and self._stop_at is None:
            self.prober.start_for_health(exchange, now)
        else:
            self._answer_health(exchange)

    def _answer_health(self, exchange: int) -> None:
        stopping = self._stop_at is not None
        status, body = page(self.core, len(self.front.sessions), len(self._living), stopping)
        self.core.out.append(do.Respond(exchange, status, [JSON], body))

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
            session = self.front.by_child.get(child)
            if session is None:
                if self.pool.owns(channel):
                    self.pool.event(channel, event, now)
                continue
            session.event(event, now)
            if session.closed:
                self.front.drop(session)
            elif session.wants_fresh_child:
                self.front.by_child.pop(child, None)
                self.core.end(channel, "a fresh child for initialize")
                self._restart(session, now)
            else:
                self._hold(session)

    def _restart(self, session: Session, now: float) -> None:
        channel = self.core.spawn(now, False)
        self.front.by_child[channel.child] = session
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

    def _pending(self) -> bool:
        return self.pool.pending() or self.prober.pending() or any(s.pending() for s in self.front.sessions.values())

    def _stop_now(self, now: float) -> None:
        for session in list(self.front.sessions.values()):
            session.close("the bridge is stopping", now)
            self.front.drop(session)
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
                self.front.streams.pop(command.exchange, None)
        commands = list(out)
        out.clear()
        if self._stopped and not self._living and not self._quit:
            self._quit = True
            commands.append(do.Quit())
        return commands
