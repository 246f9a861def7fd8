"""A proxy in front of a scripted server, and raw clients: the two ends of each conversation are the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import h11
import pytest

from mcpiac.local.netns import Address
from mcpiac.local.proxy import Access, ActivityKind, Condition, Proxy
from mcpiac.local.proxy_rules import Route

TOKEN = b"t0ken-t0ken-t0ken-t0ken-t0ken-t0ken-t0ken-x"
PID = 4242
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HostDialer:
    """The machine's own loopback in place of a sandbox's (the real one is tested in test_netns.py)."""

    async def connect(self, pid: int, address: Address) -> socket.socket:
        assert pid == PID
        family = socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, address)
        except BaseException:
            made.close()
            raise
        return made


@dataclass
class FakeDaemon:
    """The daemon's side: whether the sandbox runs is the test's to say; everything told is kept."""

    paused: bool = False
    wakes: int = 0
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None
    told: list[tuple[str, bool]] = field(default_factory=list)
    condition: Condition = field(default_factory=lambda: Condition("running", "See `mcpiac logs files`."))

    def running(self, sandbox: str) -> int | None:
        return None if self.paused else PID

    async def wake(self, sandbox: str) -> int:
        self.wakes += 1
        if self.failure is not None:
            raise self.failure
        await self.woken.wait()
        self.paused = False
        return PID

    def activity(self, sandbox: str, kind: ActivityKind, stream: bool) -> None:
        self.told.append((kind, stream))

    def describe(self, sandbox: str, port: int) -> Condition:
        return self.condition

    @property
    def busy(self) -> int:
        """Requests that keep the sandbox awake now."""
        return self.told.count(("begin", False)) - self.told.count(("end", False))

    @property
    def streams(self) -> int:
        return self.told.count(("begin", True)) - self.told.count(("end", True))


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes
    interim: list[int]


class Talker:
    """A client that speaks HTTP by h11, or raw."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.reader, self.writer, self.port = reader, writer, port
        self.http = h11.Connection(h11.CLIENT)

    def head(self, method: str, target: str, headers: Any = (), *, token: bytes | None = TOKEN) -> list[Any]:
        made: list[Any] = [("Host", f"127.0.0.1:{self.port}"), *headers]
        if token is not None:
            made.append(("Cookie", b"__sbx_auth=" + token))
        return made

    async def send(self, event: Any) -> None:
        data = self.http.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def event(self) -> Any:
        while True:
            found = self.http.next_event()
            if found is h11.NEED_DATA:
                self.http.receive_data(await self.reader.read(65536))
                continue
            return found

    async def answer(self) -> Answered:
        interim: list[int] = []
        while isinstance(found := await self.event(), h11.InformationalResponse):
            interim.append(found.status_code)
        assert isinstance(found, h11.Response), found
        body = b""
        while isinstance(part := await self.event(), h11.Data):
            body += bytes(part.data)
        headers = {name.decode(): value.decode() for name, value in found.headers}
        return Answered(found.status_code, headers, body, interim)

    async def ask(
        self,
        method: str = "GET",
        target: str = "/",
        headers: Any = (),
        body: bytes | None = None,
        token: bytes | None = TOKEN,
    ) -> Answered:
        """One whole request; several may follow one another."""
        if self.http.our_state is not h11.IDLE:
            self.http.start_next_cycle()
        made = self.head(method, target, headers, token=token)
        if body is not None:
            made.append(("Content-Length", str(len(body))))
        await self.send(h11.Request(method=method, target=target, headers=made))
        if body is not None:
            await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())
        return await self.answer()

    async def raw(self, data: bytes) -> None:
        self.writer.write(data.replace(b"@PORT@", b"%d" % self.port))
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Everything until the proxy closes."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b"<reset>"


@dataclass
class World:
    proxy: Proxy
    guests: FakeDaemon
    listen: int
    port: int
    seen: list[bytes]
    """Request heads that the server got."""
    connections: list[int]
    access: list[Access]

    @contextlib.asynccontextmanager
    async def client(self, listen: int | None = None) -> AsyncIterator[Talker]:
        reader, writer = await asyncio.open_connection("127.0.0.1", listen or self.listen, limit=2**24)
        try:
            yield Talker(reader, writer, listen or self.listen)
        finally:
            writer.transport.abort()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not true():
                await asyncio.sleep(0.002)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Bench:
    """Made by the ``proxied`` fixture."""

    TOKEN = TOKEN
    Condition = Condition
    free_port = staticmethod(free_port)

    @staticmethod
    def run(conversation: Callable[[World], Awaitable[None]], handler: Handler | None = None, **options: Any) -> None:
        """Run a conversation against a proxy whose server is ``handler`` (None: answers ``ok`` to all)."""

        async def main() -> None:
            async with asyncio.timeout(options.pop("deadline", 20)), world(handler, **options) as made:
                await conversation(made)

        asyncio.run(main())


@contextlib.asynccontextmanager
async def world(handler: Handler | None, *, server_limit: int = 2**24, **options: Any) -> AsyncIterator[World]:
    seen: list[bytes] = []
    connections: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await read_head(reader):
            seen.append(head)
            length = _length(head)
            if length:
                seen.append(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await (handler or answer_ok)(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=server_limit)
    port = server.sockets[0].getsockname()[1]
    guests, access = FakeDaemon(), list[Access]()
    proxy = Proxy(HostDialer(), guests, access=access.append, **options)
    listen = free_port()
    await proxy.open(Route("sandbox", port, listen, TOKEN))
    try:
        yield World(proxy, guests, listen, port, seen, connections, access)
    finally:
        proxy.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        async with asyncio.timeout(5):
            while [task for task in asyncio.all_tasks() if "Client._connect" in repr(task)]:
                await asyncio.sleep(0)


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """A head with its blank line; empty at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@pytest.fixture
def proxied() -> type[Bench]:
    return Bench
