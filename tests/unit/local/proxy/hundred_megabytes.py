"""Passes 100 MB through a proxy that runs in a process of its own; prints its growth in KiB and the bytes passed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

SIZE = 100 * 1024 * 1024
TOKEN = b"token"


def peak() -> int:
    for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    return 0


def run_proxy(pipe: Connection, port: int, listen: int) -> None:
    from mcpiac.local.proxy import Condition, Proxy
    from mcpiac.local.proxy_rules import Route

    class Dialer:
        async def connect(self, pid, address):  # type: ignore[no-untyped-def]
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, address)
            return made

    class Guests:
        def running(self, sandbox):  # type: ignore[no-untyped-def]
            return 1

        async def wake(self, sandbox):  # type: ignore[no-untyped-def]
            return 1

        def activity(self, sandbox, kind, stream):  # type: ignore[no-untyped-def]
            pass

        def describe(self, sandbox, port):  # type: ignore[no-untyped-def]
            return Condition("running", "")

    async def main() -> None:
        proxy = Proxy(Dialer(), Guests())
        await proxy.open(Route("s", port, listen, TOKEN))
        before = peak()
        pipe.send("ready")
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        pipe.send(peak() - before)

    asyncio.run(main())


def read_head(peer: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += peer.recv(65536)
    return got.partition(b"\r\n\r\n")[2]


def flood(peer: socket.socket) -> None:
    block = b"x" * 65536
    for _ in range(SIZE // len(block)):
        peer.sendall(block)


def drain(peer: socket.socket, got: int) -> int:
    """A reader that is slow at first: by then the other side can write no more."""
    time.sleep(1.0)
    while got < SIZE:
        got += len(peer.recv(65536))
    return got


def main() -> None:
    direction = sys.argv[1]
    context = multiprocessing.get_context("spawn")
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen = probe.getsockname()[1]
    ours, theirs = context.Pipe()
    proxy = context.Process(target=run_proxy, args=(theirs, server.getsockname()[1], listen), daemon=True)
    proxy.start()
    ours.recv()
    passed: list[int] = []
    down = direction == "down"

    def serve() -> None:
        peer, _ = server.accept()
        rest = read_head(peer)
        if down:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
            flood(peer)
        else:
            passed.append(drain(peer, len(rest)))
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    with socket.create_connection(("127.0.0.1", listen)) as client:
        length = 0 if down else SIZE
        head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer token\r\nContent-Length: %d\r\n\r\n"
        client.sendall(head % (listen, length))
        if down:
            passed.append(drain(client, len(read_head(client))))
        else:
            flood(client)
            read_head(client)
    thread.join()
    ours.send("done")
    print(ours.recv(), passed[0])
    proxy.join()


if __name__ == "__main__":
    main()
