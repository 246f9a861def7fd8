"""The way out of a sandbox: real namespaces and sockets; the names, and where they lead, are the tests' own."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from tests.unit.local.test_netns import OWNERS, needs_guest_python, running

from mcpiac.local import egress
from mcpiac.local.egress import EgressError, Relay, not_public, system_resolver
from mcpiac.local.netns import Dialer
from mcpiac.model.destination import MOST, Destination

GUEST = """
import socket, sys, threading
def talk(connected):
    with connected:
        try:
            connected.sendall(b"question")
            connected.shutdown(socket.SHUT_WR)
            got = bytearray()
            while piece := connected.recv(65536):
                got += piece
            return "got " + str(len(got)) + " " + got[:20].decode()
        except OSError as failure:
            return "cut " + str(failure.errno)
print("ready", flush=True)
for line in sys.stdin:
    host, port, count = line.split()
    try:
        made = [socket.create_connection((host, int(port)), 20) for _ in range(int(count))]
    except OSError as failure:
        print("failed", failure.errno, flush=True)
        continue
    print("connected", flush=True)
    for each in made:
        each.settimeout(20)
    said = []
    threads = [threading.Thread(target=lambda each=each: said.append(talk(each))) for each in made]
    for each in threads: each.start()
    for each in threads: each.join()
    print("; ".join(sorted(said)), flush=True)
"""
"""For each line ``host port count``: connects so often, then asks over each, and tells what came back."""

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Guest:
    """The program above, in a sandbox."""

    def __init__(self, pid: int, process: subprocess.Popen[bytes]) -> None:
        self.pid = pid
        self._process = process

    async def say(self, host: str, port: int, count: int = 1) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{host} {port} {count}\n".encode())
        self._process.stdin.flush()
        return await self.hear()

    async def hear(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.to_thread(self._process.stdout.readline)).decode().strip()


def inside(work: Callable[[Guest], Awaitable[None]], uid: int | None = None) -> None:
    async def run(guest: Guest) -> None:
        await asyncio.wait_for(work(guest), 60)

    with running("a", uid, GUEST) as (pid, process):
        asyncio.run(run(Guest(pid, process)))


@contextlib.asynccontextmanager
async def target(handler: Handler) -> AsyncIterator[int]:
    """A server on this machine's loopback; its port."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To whole questions only: the end of the question must come through, and the answer after it."""
    asked = await reader.read()
    writer.write(b"answer to " + asked)
    await writer.drain()
    writer.close()


def names(*addresses: str) -> egress.Resolve:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


def anywhere(address: egress.Address) -> str:
    """The policy of these tests alone: their targets are on loopback."""
    return ""


@contextlib.asynccontextmanager
async def way_out(
    guest: Guest, *wanted: tuple[str, int], connections: int = egress.CONNECTIONS
) -> AsyncIterator[tuple[Relay, list[str]]]:
    """An open relay, and what it tells."""
    dialer, told = Dialer(), list[str]()
    relay = Relay(
        dialer,
        [Destination(*each) for each in wanted],
        told.append,
        resolve=names("127.0.0.1"),
        refuse=anywhere,
        connections=connections,
    )
    await relay.pin()
    await relay.open(guest.pid)
    try:
        yield relay, told
    finally:
        await relay.close()
        dialer.close()


@needs_guest_python
@pytest.mark.parametrize("uid", OWNERS)
def test_a_listed_name_leads_out_and_nothing_else_does(uid: int | None) -> None:
    async def work(guest: Guest) -> None:
        async with target(answer) as port, way_out(guest, ("b.example", port), ("a.example", port)) as (relay, _):
            assert relay.names == "127.1.0.1 a.example\n127.1.0.2 b.example\n"
            for address in ("127.1.0.1", "127.1.0.2"):
                assert await guest.say(address, port) == "connected"
                assert await guest.hear() == "got 18 answer to question"
            assert await guest.say("127.0.0.1", port) == "failed 111"
            assert await guest.say("127.1.0.3", port) == "failed 111"
            assert await guest.say("127.1.0.1", port - 1) == "failed 111"
            assert await guest.say("10.0.0.1", port) == "failed 101"

    inside(work, uid)


@needs_guest_python
def test_large_answers_come_whole() -> None:
    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(b"x" * 20_000_000)
        await writer.drain()
        writer.close()

    async def work(guest: Guest) -> None:
        async with target(large) as port, way_out(guest, ("a.example", port)):
            assert await guest.say("127.1.0.1", port, 3) == "connected"
            assert await guest.hear() == "; ".join(["got 20000000 " + "x" * 20] * 3)

    inside(work)


@needs_guest_python
def test_connections_are_bounded_and_the_others_wait() -> None:
    async def work(guest: Guest) -> None:
        active, peak, go = 0, 0, asyncio.Event()
        two = asyncio.Event()

        async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal active, peak
            active += 1
            peak = max(peak, active)
            if active == 2:
                two.set()
            await go.wait()
            active -= 1
            await answer(reader, writer)

        async with target(counted) as port, way_out(guest, ("a.example", port), connections=2):
            assert await guest.say("127.1.0.1", port, 6) == "connected"
            await two.wait()
            go.set()
            assert await guest.hear() == "; ".join(["got 18 answer to question"] * 6)
        assert peak == 2

    inside(work)


@needs_guest_python
def test_closing_ends_what_is_open_and_leaves_no_descriptor() -> None:
    async def work(guest: Guest) -> None:
        asked = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            asked.set()
            await reader.read()
            writer.close()

        async with target(silent) as port:
            before = len(os.listdir("/proc/self/fd"))
            async with way_out(guest, ("a.example", port)) as (relay, _):
                assert await guest.say("127.1.0.1", port) == "connected"
                await asked.wait()
                await relay.close()
                assert (await guest.hear()).startswith(("cut", "got 0"))
                assert await guest.say("127.1.0.1", port) == "failed 111"
            async with asyncio.timeout(10):
                while len(os.listdir("/proc/self/fd")) > before:
                    await asyncio.sleep(0.01)

    inside(work)


@needs_guest_python
def test_a_target_that_does_not_answer_is_told_once() -> None:
    async def work(guest: Guest) -> None:
        async with target(answer) as port:
            pass
        async with way_out(guest, ("a.example", port)) as (_, told):
            for _ in range(2):
                assert await guest.say("127.1.0.1", port) == "connected"
                assert (await guest.hear()).startswith(("cut", "got 0"))
            assert len(told) == 1
            assert told[0].startswith(f"a.example:{port} cannot be reached: ")

    inside(work)


@needs_guest_python
def test_what_was_resolved_at_the_start_counts() -> None:
    """A name that leads elsewhere later changes nothing, and of several addresses the first that answers is taken."""

    async def work(guest: Guest) -> None:
        asked: list[str] = []

        async def moving(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return ("127.0.0.2", "127.0.0.1")

        dialer = Dialer()
        async with target(answer) as port:
            relay = Relay(dialer, [Destination("a.example", port)], asked.append, resolve=moving, refuse=anywhere)
            await relay.pin()
            await relay.open(guest.pid)
            for _ in range(2):
                assert await guest.say("127.1.0.1", port) == "connected"
                assert await guest.hear() == "got 18 answer to question"
            assert asked == ["a.example"]
            await relay.close()
        dialer.close()

    inside(work)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.1", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::1", "loopback"),
        ("::", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::127.0.0.1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("fd12::1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::10.0.0.1", "private"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("ff02::1", "multicast"),
        ("169.254.169.254", "a metadata service"),
        ("::ffff:169.254.169.254", "a metadata service"),
        ("64:ff9b::169.254.169.254", "a metadata service"),
        ("fd00:ec2::254", "a metadata service"),
        ("100.100.100.200", "a metadata service"),
        ("168.63.129.16", "a metadata service"),
        ("100.64.0.1", "not public"),
        ("255.255.255.255", "private"),
        ("240.0.0.1", "private"),
        ("192.0.2.1", "private"),
        ("fec0::1", "not public"),
        ("2002:7f00:1::1", "not public"),
        ("2001:0:1::1", "not public"),
        ("64:ff9b:1::1", "not public"),
        ("93.184.216.34", ""),
        ("2606:2800:220:1:248:1893:25c8:1946", ""),
        ("64:ff9b::93.184.216.34", ""),
    ],
)
def test_the_policy_of_the_product(address: str, kind: str) -> None:
    assert not_public(ipaddress.ip_address(address)) == kind


def pinned(resolve: egress.Resolve, host: str = "a.example") -> EgressError:
    async def run() -> EgressError:
        with pytest.raises(EgressError) as raised:
            await Relay(Dialer(), [Destination(host)], print, resolve=resolve).pin()
        return raised.value

    return asyncio.run(run())


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.216.34", "10.0.0.1"), ("169.254.169.254",)])
def test_a_name_that_leads_where_no_sandbox_goes_is_refused(addresses: tuple[str, ...]) -> None:
    error = pinned(names(*addresses))
    assert error.code == "host_refused"
    assert f"a.example resolves to {addresses[-1]}, which is " in error.message
    assert error.hint


def test_with_the_systems_resolver_too() -> None:
    error = pinned(system_resolver, "localhost")
    assert error.code == "host_refused"
    assert error.message.endswith("which is loopback")


def test_a_name_that_cannot_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    async def hangs(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(egress, "RESOLVE_SECONDS", 0.01)
    for resolve, why in ((fails, "Name or service not known"), (hangs, "no answer within"), (names(), "no address")):
        error = pinned(resolve)
        assert error.code == "host_unresolved"
        assert error.message.startswith("a.example cannot be resolved: ")
        assert why in error.message


def test_there_is_a_most() -> None:
    with pytest.raises(ValueError, match=str(MOST)):
        Relay(Dialer(), [Destination(f"h{number}.example") for number in range(MOST + 1)], print)
