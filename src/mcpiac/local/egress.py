"""A way out of a sandbox that has no network: to listed names and ports, and to nothing else.

Inside, ``/etc/hosts`` leads each listed name to an address of the sandbox's own loopback, 127.1.0.N. There, sockets
of ours listen (``Dialer.listen``: made by our helper, never held by the guest); what connects is carried to the
address that the name had, outside, when the sandbox began. So it works for whatever asks for a name: node, Python,
curl, raw TCP. The guest can choose neither the address nor the port, and a name that moves later changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from ipaddress import IPv4Address, IPv6Address

from mcpiac.local.netns import Dialer
from mcpiac.model.destination import MOST, Destination

CONNECTIONS = 64
"""Carried at once for one sandbox; further ones wait to be accepted."""
RESOLVE_SECONDS = 10.0
CONNECT_SECONDS = 15.0
_AGAIN_SECONDS = 0.1
_PIECE = 64 * 1024

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, in the order in which they are tried. Raises OSError."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Refuse = Callable[[Address], str]
"""What an address is that may not be reached (``loopback``, …); '' for one that may."""

_METADATA = frozenset(
    ipaddress.ip_address(each) for each in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16")
)
"""Where clouds hand out credentials: AWS and most others, AWS over IPv6, Alibaba, and Azure's WireServer."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""RFC 6052: the last 32 bits are an IPv4 address, which a gateway connects to."""
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
"""RFC 8215: where they lie is the network's own affair."""


class EgressError(Exception):
    """``code``: ``host_refused`` or ``host_unresolved`` (docs/packages.md)."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


async def system_resolver(host: str, port: int) -> list[str]:
    """As this machine resolves names."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def not_public(address: Address) -> str:
    """The policy of the product: nothing of this machine, of the networks around it, or of a cloud's insides."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return not_public(inner)
        if address.sixtofour or address.teredo or address.is_site_local or address in _NAT64_LOCAL:
            return "not public"
    if address in _METADATA:
        return "a metadata service"
    kinds = (
        (address.is_loopback or address.is_unspecified, "loopback"),
        (address.is_link_local, "link-local"),
        (address.is_multicast, "multicast"),
        (address.is_private, "private"),
        (address.is_reserved or not address.is_global, "not public"),
    )
    return next((word for matches, word in kinds if matches), "")


class Relay:
    """The way out of one sandbox: ``pin``, start the sandbox with ``names``, ``open``, and ``close`` with it.

    ``tell`` hears once of each destination that could not be reached. Belongs to one event loop.
    """

    def __init__(
        self,
        dialer: Dialer,
        destinations: Sequence[Destination],
        tell: Callable[[str], None],
        *,
        resolve: Resolve = system_resolver,
        refuse: Refuse = not_public,
        connections: int = CONNECTIONS,
    ) -> None:
        self._dialer = dialer
        self._destinations = tuple(sorted(set(destinations)))
        hosts = sorted({each.host for each in self._destinations})
        if len(self._destinations) > MOST:
            raise ValueError(f"at most {MOST} destinations")
        self._inside = {host: f"127.1.0.{number}" for number, host in enumerate(hosts, 1)}
        self._resolve = resolve
        self._refuse = refuse
        self._tell = tell
        self._room = asyncio.Semaphore(connections)
        self._pinned: dict[str, tuple[str, ...]] = {}
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[Destination] = set()

    @property
    def names(self) -> str:
        """Lines for the sandbox's ``/etc/hosts``."""
        return "".join(f"{address} {host}\n" for host, address in self._inside.items())

    async def pin(self) -> None:
        """Resolve each name, once. Raises EgressError: unknown, or one of its addresses may not be reached."""
        ports = {each.host: each.port for each in self._destinations}
        found = await asyncio.gather(*(self._addresses(host, port) for host, port in ports.items()))
        self._pinned = dict(zip(ports, found, strict=True))

    async def open(self, pid: int) -> None:
        """Listen inside the network namespace of ``pid``. Raises DialError, ProcessLookupError; then nothing does."""
        try:
            for each in self._destinations:
                made = await self._dialer.listen(pid, (self._inside[each.host], each.port))
                self._listeners.append(made)
                self._start(self._accept(made, each))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End every connection and listen no more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._listeners:
            self._listeners.pop().close()

    async def _addresses(self, host: str, port: int) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = tuple(await self._resolve(host, port))
        except TimeoutError:
            raise _unresolved(host, f"no answer within {RESOLVE_SECONDS:.0f} s") from None
        except (OSError, UnicodeError) as failure:
            raise _unresolved(host, getattr(failure, "strerror", None) or str(failure)) from failure
        if not found:
            raise _unresolved(host, "it has no address")
        for each in found:
            kind = self._refuse(ipaddress.ip_address(each))
            if kind:
                hint = "only public addresses are reached from a sandbox; take this host out of the list"
                raise EgressError("host_refused", f"{host} resolves to {each}, which is {kind}", hint)
        return found

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, to: Destination) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptor left, or the peer is gone already
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            try:
                await self._room.acquire()
            except BaseException:
                peer.close()
                raise
            self._start(self._carry(peer, to))

    async def _carry(self, peer: socket.socket, to: Destination) -> None:
        with contextlib.ExitStack() as ends:
            ends.callback(self._room.release)
            inside = await _taken(peer, ends)
            outside = await self._reach(to, ends)
            if outside is None:
                return
            with contextlib.suppress(OSError, ExceptionGroup):
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pump(inside[0], outside[1]))
                    both.create_task(_pump(outside[0], inside[1]))
                for _, writer in (inside, outside):
                    writer.close()
                    await writer.wait_closed()

    async def _reach(self, to: Destination, ends: contextlib.ExitStack) -> Streams | None:
        """The first pinned address that answers."""
        why = f"no answer within {CONNECT_SECONDS:.0f} s"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                for address in self._pinned[to.host]:
                    try:
                        made = await asyncio.open_connection(address, to.port)
                    except OSError as failure:
                        why = failure.strerror or str(failure)
                    else:
                        ends.callback(made[1].transport.abort)
                        return made
        if to not in self._told:
            self._told.add(to)
            self._tell(f"{to.host}:{to.port} cannot be reached: {why}")
        return None


async def _taken(peer: socket.socket, ends: contextlib.ExitStack) -> Streams:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        made = await asyncio.open_connection(sock=peer)
    except BaseException:
        peer.close()
        raise
    ends.callback(made[1].transport.abort)
    return made


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until its end, which is passed on: the other direction may go on."""
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


def _unresolved(host: str, why: str) -> EgressError:
    hint = "look at the name; this machine must be able to resolve it"
    return EgressError("host_unresolved", f"{host} cannot be resolved: {why}", hint)
