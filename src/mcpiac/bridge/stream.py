"""One answer on its way to a client: whole JSON where that is all, an event stream where more comes.

A stream begins as nothing sent. The answer alone makes it `application/json`; anything before the
answer, or a long silence, makes it `text/event-stream`. Streams of a session keep their events for
a client that comes back with Last-Event-ID.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from . import commands as do
from . import sse
from .limits import Limits

RETRY_MS = 1000
LARGE = 1 << 20  # a current SDK refuses a larger event
LONGEST_HOLD = 2.0
HOLD = 0.1  # seconds that first notifications wait: a large answer close behind them goes as JSON


class Counters:
    """What has happened since the start; shown by the health page."""

    answers = bytes_in = bytes_out = calls = children = crashes = dropped = errors = evicted = 0
    large_events = noise = refused = repaired = sessions = strays = timeouts = 0

    def as_dict(self) -> dict[str, int]:
        return {n: getattr(self, n) for n, v in sorted(vars(Counters).items()) if isinstance(v, int)}


class EventStore:
    """The last events of one session, over all its streams, bounded in number and bytes."""

    __slots__ = ("_bytes", "_events", "_limit", "_limit_bytes")

    def __init__(self, limits: Limits) -> None:
        self._events: deque[tuple[int, int, bytes]] = deque()
        self._bytes = 0
        self._limit = limits.store
        self._limit_bytes = limits.store_bytes

    def add(self, stream: int, seq: int, data: bytes) -> None:
        self._events.append((stream, seq, data))
        self._bytes += len(data)
        # the newest event stays whatever its size: it may be an answer nobody has read
        while len(self._events) > 1 and (len(self._events) > self._limit or self._bytes > self._limit_bytes):
            self._bytes -= len(self._events.popleft()[2])

    def after(self, stream: int, seq: int) -> list[tuple[int, bytes]]:
        return [(s, data) for number, s, data in self._events if number == stream and s > seq]

    def knows(self, stream: int) -> bool:
        return any(number == stream for number, _, _ in self._events)


class Stream:
    """The answer to one POST (or one GET stream). `exchange` is None while no client is attached."""

    __slots__ = (
        "_backlog",
        "_counters",
        "_held",
        "_held_since",
        "_limits",
        "_out",
        "_seq",
        "_store",
        "accepts_json",
        "accepts_sse",
        "backlog_bytes",
        "begun",
        "blocked_since",
        "done",
        "exchange",
        "last",
        "modern",
        "number",
        "opened",
        "opens",
        "pending",
        "primed",
        "spill",
        "standing",
    )  # fmt: skip

    def __init__(
        self,
        out: list[do.Command],
        limits: Limits,
        counters: Counters,
        exchange: int | None,
        now: float,
        *,
        number: int = 0,
        store: EventStore | None = None,
        accepts_sse: bool = True,
        accepts_json: bool = True,
        modern: bool = False,
    ) -> None:
        self._out = out
        self._limits = limits
        self._counters = counters
        self._store = store
        self._seq = 0
        self._backlog: deque[tuple[bytes, bool]] = deque()
        self._held: list[str] = []
        self._held_since = 0.0
        self.spill: Callable[[list[str]], None] | None = None  # where held notifications go instead
        self.backlog_bytes = 0
        self.exchange = exchange
        self.number = number
        self.standing = False  # a GET stream: it has no answer of its own and never ends by itself
        self.accepts_sse = accepts_sse
        self.accepts_json = accepts_json
        self.modern = modern
        self.primed = False  # send an empty first event with an id (2025-11-25)
        self.begun = False
        self.done = False
        self.pending = 0
        self.opens: str | None = None  # the session that the answer opens
        self.opened = False
        self.blocked_since: float | None = None
        self.last = now

    # what goes out

    def note(self, text: str, now: float, droppable: bool = True) -> None:
        """A message before (or without) the answer."""
        if not self.begun and self.exchange is not None:
            if droppable and self.accepts_json and len(self._held) < self._limits.queue:
                if not self._held:
                    self._held_since = now
                    self._out.append(do.Wake(HOLD))
                self._held.append(text)
                return
            self.release(now)
            if not self.begun:
                self.begin(now)
        self._emit(text, now, droppable)

    def holds(self, now: float) -> bool:
        """Whether notifications are held back that may wait a little more."""
        return bool(self._held) and now - self._held_since < LONGEST_HOLD

    def release(self, now: float) -> None:
        """Sends the notifications that were held back."""
        held, self._held = self._held, []
        if held and not self.begun and self.exchange is not None:
            self.begin(now)
        for text in held:
            self._emit(text, now, True)

    def answer(self, text: str, now: float, status: int = 200) -> None:
        """The answer of one pending call; with the last one the stream is done."""
        self.pending -= 1
        last = self.pending <= 0
        if self._held and last and len(text) >= LARGE - 4096:
            held, self._held = self._held, []
            if self.spill is not None:
                self.spill(held)
            else:
                self._counters.dropped += len(held)
        self.release(now)
        if self.exchange is not None and not self.begun and last and self.accepts_json:
            headers = [("content-type", "application/json")]
            if self.opens is not None and self.opened:
                headers.append(("mcp-session-id", self.opens))
            self._out.append(do.Respond(self.exchange, status, headers, text.encode("utf-8")))
            self.exchange = None
            self.done = True
            return
        if not self.begun and self.exchange is not None:
            self.begin(now)
        self._emit(text, now, False)
        if last:
            self.finish()

    def begin(self, now: float) -> None:
        assert self.exchange is not None
        self.begun = True
        self.last = now
        headers = list(sse.HEADERS)
        if self.opens is not None:  # not open yet, but headers go first
            headers.append(("mcp-session-id", self.opens))
        self._out.append(do.Begin(self.exchange, headers))
        if self.primed and self._store is not None:
            data = sse.priming(self._next_id(), RETRY_MS)
            self._store.add(self.number, self._seq, data)
            self._out.append(do.Data(self.exchange, data))

    def finish(self) -> None:
        """No more will come; what waits for a slow client is still sent."""
        self.done = True
        if self.exchange is not None and not self._backlog:
            self._out.append(do.Finish(self.exchange))
            self.exchange = None

    def keepalive(self, now: float) -> None:
        if self.exchange is None or self.done or self.blocked_since is not None or not self.accepts_sse:
            return
        if now - self.last >= self._limits.keepalive:
            if not self.begun:
                self.begin(now)
            self.last = now
            self._out.append(do.Data(self.exchange, sse.KEEPALIVE))

    # the client

    @property
    def waiting(self) -> int:
        """Events that wait for the client."""
        return len(self._backlog)

    def gone(self) -> None:
        """The client closed the connection."""
        self._held.clear()
        self.exchange = None
        self.blocked_since = None
        if not self.standing:
            self._backlog.clear()
            self.backlog_bytes = 0

    def blocked(self, on: bool, now: float) -> None:
        """The client does not read (on), or reads again."""
        if on:
            self.blocked_since = now
            return
        self.blocked_since = None
        self.flush(now)

    def flush(self, now: float) -> None:
        if self.exchange is None or self.blocked_since is not None:
            return
        while self._backlog:
            data, _ = self._backlog.popleft()
            self._out.append(do.Data(self.exchange, data))
        self.backlog_bytes = 0
        self.last = now
        if self.done:
            self._out.append(do.Finish(self.exchange))
            self.exchange = None

    def attach(self, exchange: int, now: float, after: int | None) -> None:
        """A client opens the stream, or comes back having seen event number `after`."""
        if self.exchange is not None:  # the newest connection wins: the older one may be half dead
            self._out.append(do.Finish(self.exchange))
        self.exchange = exchange
        self.blocked_since = None
        self.begun = True
        self.last = now
        self._out.append(do.Begin(exchange, list(sse.HEADERS)))
        if after is not None and self._store is not None:
            first_waiting = self._seq - len(self._backlog)
            for seq, data in self._store.after(self.number, after):
                if seq <= first_waiting:
                    self._out.append(do.Data(exchange, data))
        elif self.primed and self._store is not None and not self._backlog:
            data = sse.priming(self._next_id(), RETRY_MS)
            self._store.add(self.number, self._seq, data)
            self._out.append(do.Data(exchange, data))
        self.flush(now)

    # inside

    def _next_id(self) -> str:
        self._seq += 1
        return f"{self.number}-{self._seq}"

    def _emit(self, text: str, now: float, droppable: bool) -> None:
        store = self._store
        waits = self.exchange is None or self.blocked_since is not None
        if (
            waits
            and droppable
            and (len(self._backlog) >= self._limits.queue or self.backlog_bytes >= self._limits.queue_bytes)
        ):
            self._counters.dropped += 1
            return
        data = sse.event(text, None if store is None else self._next_id())
        if len(data) > LARGE:
            self._counters.large_events += 1
        if store is not None:
            store.add(self.number, self._seq, data)
        if not waits:
            assert self.exchange is not None
            self.last = now
            self._out.append(do.Data(self.exchange, data))
        elif self.exchange is not None or self.standing:
            self._backlog.append((data, droppable))
            self.backlog_bytes += len(data)
