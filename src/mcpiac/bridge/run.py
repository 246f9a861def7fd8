"""Wires the core to asyncio: listens, starts servers, passes events and carries out commands."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

from . import commands as do
from . import linux
from .clock import ActiveClock
from .core import Ended
from .gate import Head, Rules
from .httpd import Connection
from .hub import Hub
from .log import Log
from .options import Settings
from .process import Server
from .stderr import Masker
from .supervise import PARENT_DIED

_IDLE_CONNECTION = 120.0
_CONNECTIONS = 1024


class Edge:
    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.loop = loop
        limits = settings.limits
        self.rules = Rules(
            settings.path, settings.allow_hosts, settings.allow_origins, limits.body, settings.health_path
        )
        self.hub = Hub(limits, self.rules, lambda: os.urandom(16).hex())
        self.clock = ActiveClock(time.monotonic)
        self.output_log = Log()
        self.masker = Masker(os.environ.items())
        self.servers: dict[int, Server] = {}
        self.connections: dict[Connection, tuple[int, float]] = {}
        self.exchanges: dict[int, Connection] = {}
        self.quit = loop.create_future()
        self._token = os.urandom(8).hex()
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None

    # what connections say (httpd.Core)

    def new_connection(self) -> Connection:
        connection = Connection(self, self.loop)
        self.connections[connection] = (0, self.now())
        if len(self.connections) > _CONNECTIONS:
            self.loop.call_soon(connection.abort)
        self._arm()
        return connection

    def new_exchange(self, connection: Connection) -> int:
        self._numbers += 1
        self.exchanges[self._numbers] = connection
        return self._numbers

    def request(self, exchange: int, head: Head, body: bytes) -> None:
        self.apply(self.hub.request(exchange, head, body, self.now()))

    def gone(self, exchange: int) -> None:
        self.exchanges.pop(exchange, None)
        self.apply(self.hub.gone(exchange, self.now()))

    def blocked(self, exchange: int, on: bool) -> None:
        self.loop.call_soon(lambda: self.apply(self.hub.blocked(exchange, on, self.now())))

    def closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    # what servers say (process.Owner)

    def output(self, child: int, data: bytes) -> None:
        self.apply(self.hub.output(child, data, self.now()))

    def ended(self, child: int, ended: Ended) -> None:
        self.apply(self.hub.ended(child, ended, self.now()))

    def full(self, child: int, on: bool) -> None:
        self.apply(self.hub.full(child, on, self.now()))

    def reaped(self, child: int) -> None:
        self.servers.pop(child, None)
        self.apply(self.hub.reaped(child, self.now()))

    def log(self, text: str) -> None:
        self.output_log.write(text)

    def now(self) -> float:
        return self.clock.now()

    # signals and time

    def child_exited(self) -> None:
        for server in list(self.servers.values()):
            server.check()
        known = {server.pid for server in self.servers.values()}
        for pid in linux.children():
            if pid not in known:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    pass

    def stop(self) -> None:
        self.apply(self.hub.stop(self.now()))

    def stop_at_once(self) -> None:
        self.stop()
        self.stop()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(1.0, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self.now()
        self.apply(self.hub.tick(now))
        self.output_log.flush()
        for connection, (moved, since) in list(self.connections.items()):
            if connection.moved != moved:
                self.connections[connection] = (connection.moved, now)
            elif connection.exchange is None and now - since > _IDLE_CONNECTION:
                connection.close()
            elif connection.unsent() and now - since > self.settings.limits.client:
                connection.abort()
        if self.hub.busy() or self.connections:
            self._arm()

    # commands

    def apply(self, commands: list[do.Command]) -> None:
        for command in commands:
            if isinstance(command, do.Write):
                server = self.servers.get(command.child)
                if server is not None:
                    server.write(command.data)
            elif isinstance(command, do.Respond):
                connection = self.exchanges.pop(command.exchange, None)
                if connection is not None:
                    connection.respond(command.status, command.headers, command.body)
            elif isinstance(command, do.Data):
                connection = self.exchanges.get(command.exchange)
                if connection is not None:
                    connection.data(command.data)
            else:
                self._rare(command)
        if commands:
            self._arm()

    def _rare(self, command: do.Command) -> None:
        if isinstance(command, do.Begin):
            connection = self.exchanges.get(command.exchange)
            if connection is not None:
                connection.begin(command.headers)
        elif isinstance(command, do.Finish):
            connection = self.exchanges.pop(command.exchange, None)
            if connection is not None:
                connection.finish()
        elif isinstance(command, do.Abort):
            connection = self.exchanges.pop(command.exchange, None)
            if connection is not None:
                connection.exchange = None
                connection.abort()
            self.apply(self.hub.gone(command.exchange, self.now()))
        elif isinstance(command, do.Spawn):
            server = Server(self, self.loop, command.child, self.settings.command, self._token)
            self.servers[command.child] = server
            server.start(self.masker)
        elif isinstance(command, do.End):
            server = self.servers.get(command.child)  # type: ignore[assignment]
            if server is not None:
                server.end()
        elif isinstance(command, do.Reading):
            server = self.servers.get(command.child)  # type: ignore[assignment]
            if server is not None:
                server.reading(command.on)
        elif isinstance(command, do.Log):
            self.output_log.write(command.text)
        elif isinstance(command, do.Wake):
            self.loop.call_later(command.seconds, lambda: self.apply(self.hub.wake(self.now())))
        elif isinstance(command, do.Quit) and not self.quit.done():
            self.quit.set_result(None)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((settings.host, settings.port))
    address = listener.getsockname()[0]
    if not (address.startswith("127.") or address == "::1"):  # do not trust the flag: look
        listener.close()
        raise OSError(f"bound to {address}, which is not loopback")
    listener.listen(256)
    return listener


async def _serve(settings: Settings, listener: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    edge = Edge(settings, loop)
    loop.set_exception_handler(lambda _, context: edge.log("bug, please report it: " + _where(context)))
    loop.add_signal_handler(signal.SIGCHLD, edge.child_exited)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, edge.stop)
    loop.add_signal_handler(PARENT_DIED, edge.stop_at_once)
    server = await loop.create_server(edge.new_connection, sock=listener)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    edge.log(f"listening on http://{shown}:{port}{settings.path}")
    await edge.quit
    server.close()
    await _flush(edge)
    return 0


def _where(context: dict[str, Any]) -> str:
    """An unforeseen exception in one line: what and where, no values."""
    exc = context.get("exception")
    if exc is None:
        return str(context.get("message", "?"))
    frames = traceback.extract_tb(exc.__traceback__)[-4:]
    places = [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in frames]
    return f"{type(exc).__name__} at " + " < ".join(reversed(places))


async def _flush(edge: Edge) -> None:
    """The last answers reach their clients."""
    deadline = time.monotonic() + 1.0
    while any(c.unsent() for c in edge.connections) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    for connection in list(edge.connections):
        connection.close()
    await asyncio.sleep(0)


def run(settings: Settings) -> int:
    """Serves until a signal; the exit status."""
    try:
        listener = _listen(settings)
    except OSError as exc:
        why = exc.strerror or str(exc)
        where = f"{settings.host} port {settings.port}"
        print(f"mcpiac-bridge: cannot listen on {where}: {why}", file=sys.stderr)
        return 1
    return asyncio.run(_serve(settings, listener))
