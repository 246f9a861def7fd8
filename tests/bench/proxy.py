"""What the hosted URL costs: latency added at 200 calls/s and calls/s that go through.

Three processes: a bare server, the proxy in front of it, and this one, which sends the calls (an MCP-sized POST, an
answer of 1 kB) once straight to the server and once through the proxy, in turns. Prints a table; exits 1 when a bar
is missed.

    python tests/bench/proxy.py [--seconds 5] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import socket
import statistics
import sys
import time
from multiprocessing.connection import Connection

from mcpiac.local.netns import Address
from mcpiac.local.proxy import ActivityKind, Condition, Proxy
from mcpiac.local.proxy_rules import Route

RATE = 200
CONNECTIONS = 32
TOKEN = b"bench-token-bench-token-bench-token-bench-x"
BODY = json.dumps(
    {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo", "arguments": {"m": "x" * 200}}}
)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n" + b"y" * 1024
BARS = {"added_median_ms": 1.0, "added_p99_ms": 5.0, "calls_per_second": 2000.0}


class Server(asyncio.Protocol):
    """Answers every request of exactly the bench's kind."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.got = b""

    def data_received(self, data: bytes) -> None:
        self.got += data
        while (end := self.got.find(b"\r\n\r\n")) >= 0 and len(self.got) >= end + 4 + len(BODY):
            self.got = self.got[end + 4 + len(BODY) :]
            self.transport.write(ANSWER)  # type: ignore[attr-defined]


class HostDialer:
    """The machine's own loopback in place of a sandbox's."""

    async def connect(self, pid: int, address: Address) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
        return made


class Running:
    """A sandbox that always runs."""

    def running(self, sandbox: str) -> int:
        return 1

    async def wake(self, sandbox: str) -> int:
        return 1

    def activity(self, sandbox: str, kind: ActivityKind, stream: bool) -> None: ...

    def describe(self, sandbox: str, port: int) -> Condition:
        return Condition("running", "")


def run_server(pipe: Connection) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(main())


def run_proxy(pipe: Connection, port: int) -> None:
    async def main() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            listen = probe.getsockname()[1]
        proxy = Proxy(HostDialer(), Running(), access=lambda line: None)
        await proxy.open(Route("bench", port, listen, TOKEN))
        pipe.send(listen)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send((usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
        await asyncio.Event().wait()

    asyncio.run(main())


def request(port: int) -> bytes:
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: __sbx_auth={TOKEN.decode()}\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: 0123456789abcdef\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    return (head + BODY).encode()


def latencies(port: int, seconds: float) -> list[float]:
    """Milliseconds per call at RATE calls a second, counted from when each was due."""
    told: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = request(port)
        start = time.perf_counter()
        for number in range(int(seconds * RATE)):
            due = start + number / RATE
            while (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            peer.sendall(sent)
            got = 0
            while got < 1024 + 60:
                got += len(peer.recv(65536))
            told.append((time.perf_counter() - due) * 1000)
    return told


class Caller(asyncio.Protocol):
    """Sends the next call when the last is answered."""

    def __init__(self, port: int, count: list[int]) -> None:
        self.request, self.count = request(port), count
        self.got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.got += len(data)
        if self.got >= 1024 + 60:
            self.got = 0
            self.count[0] += 1
            self.transport.write(self.request)  # type: ignore[attr-defined]


async def throughput(port: int, seconds: float) -> float:
    """Calls a second over CONNECTIONS connections."""
    loop, count = asyncio.get_running_loop(), [0]
    made = [await loop.create_connection(lambda: Caller(port, count), "127.0.0.1", port) for _ in range(CONNECTIONS)]
    await asyncio.sleep(0.5)
    first, start = count[0], time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (count[0] - first) / (time.perf_counter() - start)
    for transport, _ in made:
        transport.abort()
    return rate


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--json", action="store_true")
    wanted = arguments.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=run_server, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    proxy_ours, proxy_theirs = context.Pipe()
    proxy = context.Process(target=run_proxy, args=(proxy_theirs, port), daemon=True)
    proxy.start()
    listen = proxy_ours.recv()
    direct: list[float] = []
    through: list[float] = []
    for _ in range(3):  # in turns, so that a busy moment of the machine meets both
        direct += latencies(port, wanted.seconds / 3)
        through += latencies(listen, wanted.seconds / 3)
    rates = asyncio.run(throughput(port, wanted.seconds / 2)), asyncio.run(throughput(listen, wanted.seconds))
    proxy_ours.send("usage")
    cpu, memory = proxy_ours.recv()
    found = {
        "direct_median_ms": statistics.median(direct),
        "through_median_ms": statistics.median(through),
        "added_median_ms": statistics.median(through) - statistics.median(direct),
        "direct_p99_ms": percentile(direct, 0.99),
        "added_p99_ms": percentile(through, 0.99) - percentile(direct, 0.99),
        "calls_per_second_direct": rates[0],
        "calls_per_second": rates[1],
        "proxy_cpu_seconds": cpu,
        "proxy_memory_mib": memory,
    }
    for process in (proxy, server):
        process.terminate()
        process.join()
    missed = [
        name for name, bar in BARS.items() if (found[name] < bar if name == "calls_per_second" else found[name] > bar)
    ]
    if wanted.json:
        print(json.dumps({name: round(value, 3) for name, value in found.items()} | {"missed": missed}))
    else:
        for name, value in found.items():
            bar = f"   bar {BARS[name]:g}{'  MISSED' if name in missed else ''}" if name in BARS else ""
            print(f"{name:26}{value:12.3f}{bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
