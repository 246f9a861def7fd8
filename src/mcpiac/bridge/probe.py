"""Asks the server once which era it speaks, and keeps the child that was asked for later use.

`server/discover` answered: 2026-07-28. An error: an older server. No answer in time, or a child that
exits on the question: probably an older one; requests go on as if, and the next may ask again until
some handshake has settled it.
"""

from __future__ import annotations

from . import adapt
from .channel import Answer, Broken, Call, Channel, Event
from .core import Core, Ended
from .gate import BRIDGE_ERROR, error_text
from .jsonscan import Message
from .lines import Noise
from .stream import Stream

_PROBE_ID = '"mcpiac-bridge-probe"'
_PATIENCE = 2.0  # seconds after which an initialize takes over a child that has not answered the probe


class Prober:
    def __init__(self, core: Core) -> None:
        self.core = core
        self._channel: Channel | None = None  # being asked
        self._asked_at = 0.0
        self.spare: Channel | None = None  # an older child that was asked and may serve the next session
        self._spare_since = 0.0
        self._held: list[tuple[Stream, Message]] = []
        self._ready: list[tuple[Stream, Message]] = []
        self._health: list[int] = []
        self._healthy: list[int] = []
        self._adopted: Channel | None = None

    # from the hub

    def hold(self, stream: Stream, message: Message, now: float) -> None:
        """Keeps a request until the era is known."""
        stream.pending += 1
        self._held.append((stream, message))
        self._ask(now)

    def start_for_health(self, exchange: int, now: float) -> None:
        self._health.append(exchange)
        self._ask(now)

    def take(self, now: float) -> Channel | None:
        """A child for a client's initialize: one that was asked already, if there is one."""
        channel, self.spare = self.spare, None
        if channel is None and self._channel is not None and now - self._asked_at >= _PATIENCE:
            channel, self._channel = self._channel, None
            channel.shared = False
            self._release(now)
        if channel is not None and channel.child not in self.core.channels:
            return None
        return channel

    def take_spare(self) -> Channel | None:
        """The spare child, for the bridge's own handshake."""
        channel, self.spare = self.spare, None
        return channel

    def gone(self, exchange: int) -> None:
        if exchange in self._health:
            self._health.remove(exchange)
        self._held = [(s, m) for s, m in self._held if s.exchange is not None and s.exchange != exchange]

    def pending(self) -> bool:
        return bool(self._held)

    def ready(self) -> list[tuple[Stream, Message]]:
        """Requests that need wait no longer."""
        ready, self._ready = self._ready, []
        for stream, _ in ready:
            stream.pending -= 1
        return [(s, m) for s, m in ready if s.exchange is not None]

    def healthy(self) -> list[int]:
        """Health requests whose child has answered or ended."""
        healthy, self._healthy = self._healthy, []
        return healthy

    def adopted(self) -> Channel | None:
        channel, self._adopted = self._adopted, None
        return channel

    # from the child

    def event(self, channel: Channel, event: Event, now: float) -> bool:
        """Takes what belongs to the probe: True."""
        if isinstance(event, (Answer, Broken)) and event.call.purpose == "probe":
            self._answered(channel, event, now)
            return True
        if channel is self._channel or channel is self.spare:
            if isinstance(event, Noise):
                self.core.noise(channel, event)
            return True
        return False

    def ended(self, channel: Channel, ended: Ended, now: float) -> None:
        if channel is self.spare:
            self.spare = None
        if channel is self._channel:
            self._channel = None
            self._release(now)

    def tick(self, now: float) -> None:
        for stream, _ in self._held:
            stream.keepalive(now)
        limits = self.core.limits
        if self._channel is not None and now - self._asked_at >= limits.probe:
            # silent: probably slow, or an older server that ignores what it does not know
            channel, self._channel = self._channel, None
            self._keep(channel, now)
            self._release(now)
        if self.spare is not None and now - self._spare_since >= min(limits.idle, 60.0):
            self.core.end(self.spare, "spare")
            self.spare = None

    def fail_all(self, text: str, now: float) -> None:
        for stream, message in self._held:
            stream.answer(error_text(message.raw_id, BRIDGE_ERROR, text), now)
        self._held.clear()

    # inside

    def _ask(self, now: float) -> None:
        if self._channel is not None:
            return
        self._channel = self.core.spawn(now, True)
        self._asked_at = now
        self._channel.own(Call(_PROBE_ID, "server/discover", None, "probe"), 0, now)
        self.core.write(self._channel, adapt.discover_request(_PROBE_ID, self.core.facts.modern_version))

    def _answered(self, channel: Channel, event: Answer | Broken, now: float) -> None:
        versions = adapt.modern_versions(event.message) if isinstance(event, Answer) else []
        facts = self.core.facts
        was_asked = channel is self._channel
        if versions:
            facts.modern = True
            if adapt.MODERN not in versions:
                facts.modern_version = versions[0]
        elif facts.modern is None:
            facts.modern = False
        if not was_asked:
            return  # it answered late; by now it serves a session or waits as the spare
        self._channel = None
        if versions:
            self._adopted = channel
        else:
            self._keep(channel, now)
        self._release(now)

    def _keep(self, channel: Channel, now: float) -> None:
        channel.shared = False
        if self.spare is not None:
            self.core.end(channel, "spare")
            return
        self.spare = channel
        self._spare_since = now

    def _release(self, now: float) -> None:
        self._ready += self._held
        self._held = []
        self._healthy += self._health
        self._health = []
