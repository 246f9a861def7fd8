"""The reverse proxy of the hosted ports: one listener on 127.0.0.1 each, which leads into a sandbox.

The daemon gives it a ``Guests``, by which it learns whether a sandbox runs, has one woken, and tells what goes on so
that the idle clock is right. The rules of a request are in ``proxy_rules``, the two kinds of connections in
``proxy_client`` and ``proxy_upstream``, what they share in ``proxy_exchange``.
Everything runs in one event loop and nothing in it ever blocks, so a stuck server slows no other one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from mcpiac.local.hosting import HostingError
from mcpiac.local.proxy_client import Client
from mcpiac.local.proxy_exchange import Exchange
from mcpiac.local.proxy_rules import Answer, Route
from mcpiac.local.proxy_upstream import Dials, Pool, Upstream

WAKE_SECONDS = 45.0
"""A request is held so long for its sandbox to wake, then answered with 504."""
STARTING_SECONDS = 15.0
"""A request is held so long for a server that is starting to listen, then answered with 502."""
_AGAIN_SECONDS = 0.02
_SWEEP_SECONDS = 10.0
CLIENTS_MAX = 512
"""Connections of clients per hosted port; one more is closed at once."""
_BACKLOG = 512

ActivityKind = Literal["begin", "bytes", "end"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Condition:
    """How a sandbox, or the server on one of its ports, is; ``message`` says it in words, with what to type.

    ``state``: running, starting, paused, stopped, expired, error, gone. The holder of the token reads the message.
    """

    state: str
    message: str


class Unavailable(Exception):
    """Raised by ``Guests.wake`` for a sandbox that a request does not wake: stopped, expired, failed, gone."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(condition.message)
        self.condition = condition


class Guests(Protocol):
    """What the proxy asks of the daemon, and tells it."""

    def running(self, sandbox: str) -> int | None:
        """The pid of the first process of a sandbox that runs now (not paused, not being paused), else None.

        Called after ``activity("begin")`` without a wait in between: a pause that is decided in one step of the event
        loop therefore never meets a request half-way.
        """

    async def wake(self, sandbox: str) -> int:
        """Wake a paused sandbox and return that pid; raises Unavailable. Never called twice at a time for one."""

    def activity(self, sandbox: str, kind: ActivityKind, stream: bool) -> None:
        """A request ``begin``s and ``end``s; ``bytes`` went either way in between.

        Busy is: begun and not ended, and not ``stream`` (a GET of events, a ``subscriptions/listen``). Bytes count
        as activity in either case. What began as one kind and turns out to be the other is ended and begun anew.
        """

    def describe(self, sandbox: str, port: int) -> Condition:
        """How the server on that port is, asked when it does not answer."""


class Access(NamedTuple):
    """One line of the access log: no query, no header, no body. Times in seconds, sizes in bytes of the bodies."""

    at: float
    sandbox: str
    port: int
    method: str
    path: str
    status: int
    received: int
    sent: int
    seconds: float
    aborted: bool


class Listener:
    """One hosted port that is open: what its connections need."""

    def __init__(self, proxy: Proxy, route: Route) -> None:
        self._proxy = proxy
        self.route = route
        self.server: asyncio.Server | None = None
        self.clients: set[Client] = set()

    def now(self) -> float:
        return self._proxy.now()

    def connected(self, client: Client) -> bool:
        """False: there are too many already."""
        if len(self.clients) >= CLIENTS_MAX:
            return False
        self.clients.add(client)
        self._proxy.sweep_later()
        return True

    def disconnected(self, client: Client) -> None:
        self.clients.discard(client)

    def began(self, exchange: Exchange) -> None:
        exchange.counted = True
        self._proxy.guests.activity(self.route.sandbox, "begin", exchange.stream)

    def moved(self, exchange: Exchange) -> None:
        self._proxy.guests.activity(self.route.sandbox, "bytes", exchange.stream)

    def ended_activity(self, exchange: Exchange) -> None:
        if exchange.counted:
            exchange.counted = False
            self._proxy.guests.activity(self.route.sandbox, "end", exchange.stream)

    def ended(self, exchange: Exchange, *, aborted: bool) -> None:
        self.ended_activity(exchange)
        access = self._proxy.access
        if access is None:
            return
        request, now = exchange.request, self._proxy.now()
        path = request.target.partition(b"?")[0][:512].decode("latin-1")
        access(
            Access(
                time.time(),
                self.route.sandbox,
                self.route.port,
                request.method.decode("latin-1"),
                path,
                exchange.status,
                exchange.received,
                exchange.sent,
                round(now - exchange.begun, 6),
                aborted,
            )
        )

    def take(self) -> Upstream | None:
        """A connection that can be used at once."""
        pid = self._proxy.guests.running(self.route.sandbox)
        return None if pid is None else self._proxy.pool.take(pid, self.route.port)

    async def reach(self) -> Upstream | Answer:
        """A new connection, the sandbox woken before if need be; or what to say when there is none."""
        return await self._proxy.reach(self.route)

    def bad_gateway(self, why: str) -> Answer:
        condition = self._proxy.guests.describe(self.route.sandbox, self.route.port)
        return Answer(502, "bad_gateway", f"The server gave no proper answer: {why}. {condition.message}".strip())


class Proxy:
    """All hosted ports of one daemon. ``access`` gets a value per finished request."""

    def __init__(
        self,
        dialer: Dials,
        guests: Guests,
        *,
        access: Callable[[Access], None] | None = None,
        wake_seconds: float = WAKE_SECONDS,
        starting_seconds: float = STARTING_SECONDS,
    ) -> None:
        self.guests = guests
        self.access = access
        self.pool = Pool(dialer)
        self._wake_seconds = wake_seconds
        self._starting_seconds = starting_seconds
        self._listeners: dict[int, Listener] = {}
        self._waking: dict[str, asyncio.Task[int]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self.now: Callable[[], float] = time.monotonic

    async def open(self, route: Route) -> None:
        """Listen. The same port again changes where it leads and its token, and keeps its connections.

        Raises HostingError ``port_taken`` when another program listens there.
        """
        listener = self._listeners.get(route.listen)
        if listener is not None:
            listener.route = route
            return
        made = listening_socket(route.listen)
        listener = Listener(self, route)
        try:
            listener.server = await asyncio.get_running_loop().create_server(
                lambda: Client(listener), sock=made, backlog=_BACKLOG
            )
        except BaseException:
            made.close()
            raise
        self._listeners[route.listen] = listener

    def routes(self) -> list[Route]:
        """What is open now."""
        return [listener.route for listener in self._listeners.values()]

    def hide(self, listen: int) -> None:
        """Close a hosted port and its connections; no-op when it is not open."""
        listener = self._listeners.pop(listen, None)
        if listener is None:
            return
        if listener.server is not None:
            listener.server.close()
        for client in list(listener.clients):
            client.close()

    def drop(self, pid: int) -> None:
        """Close the connections into a sandbox whose first process was ``pid`` (stopped, deleted, started anew)."""
        self.pool.drop(pid)

    def close(self) -> None:
        """Close everything."""
        for listen in list(self._listeners):
            self.hide(listen)
        self.pool.close()
        for task in self._waking.values():
            task.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    async def reach(self, route: Route) -> Upstream | Answer:
        deadline = self.now() + self._starting_seconds
        while True:
            try:
                pid = self.guests.running(route.sandbox) or await self._woken(route.sandbox)
            except Unavailable as unavailable:
                return Answer(503, f"sandbox_{unavailable.condition.state}", unavailable.condition.message)
            except TimeoutError:
                return Answer(504, "wake_timeout", f"The sandbox did not wake within {self._wake_seconds:g} s.")
            try:
                return await self.pool.connect(pid, route.port)
            except OSError as failure:  # TimeoutError is one
                condition = self.guests.describe(route.sandbox, route.port)
                if condition.state != "starting" or self.now() >= deadline:
                    why = failure.strerror or type(failure).__name__
                    said = f"Nothing answers on port {route.port} of the sandbox ({why}). {condition.message}"
                    return Answer(502, "server_not_listening", said.strip())
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _woken(self, sandbox: str) -> int:
        """Many requests at once wake a sandbox once; one that gives up leaves the wake to the others."""
        task = self._waking.get(sandbox)
        if task is None:
            task = self._waking[sandbox] = asyncio.get_running_loop().create_task(self._wake(sandbox))
            task.add_done_callback(lambda done: self._woke(sandbox, done))
        async with asyncio.timeout(self._wake_seconds):
            return await asyncio.shield(task)

    async def _wake(self, sandbox: str) -> int:
        return await self.guests.wake(sandbox)

    def _woke(self, sandbox: str, task: asyncio.Task[int]) -> None:
        self._waking.pop(sandbox, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            level = logging.INFO if isinstance(failure, Unavailable) else logging.ERROR
            log.log(level, "sandbox %s was not woken: %s", sandbox, failure)

    def sweep_later(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._close_overdue)

    def _close_overdue(self) -> None:
        self._sweep = None
        now, left = self.now(), False
        for listener in self._listeners.values():
            for client in list(listener.clients):
                left = True
                if client.overdue(now):
                    client.close()
        if left:
            self.sweep_later()


def listening_socket(listen: int) -> socket.socket:
    """A socket bound to 127.0.0.1:``listen``; raises HostingError ``port_taken``, or OSError."""
    # Without the protocol number asyncio does not set TCP_NODELAY on what is accepted.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", listen))
        made.listen(_BACKLOG)
    except OSError as failure:
        made.close()
        if failure.errno in (errno.EADDRINUSE, errno.EACCES):
            raise HostingError(
                "port_taken", f"port {listen} of this machine is taken by another program"
            ) from failure
        raise
    made.setblocking(False)
    return made
