"""Connections into a sandbox's network namespace, made from outside it.

A ``Dialer`` hands out sockets that were created inside the network namespace of a sandbox by a small helper process
of ours (``netns_zygote``) and are connected, or (``listen``) accepted from, here, by asyncio. No descriptor that a
guest has ever held comes into this process: a guest could clear O_NONBLOCK on it and hang the event loop. Sockets are
made in batches and kept ready, since a batch costs a fork (milliseconds) and a ready one nothing.
"""

from __future__ import annotations

import array
import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket as Socket

from mcpiac.local.netns_zygote import REPLY, REQUEST, STEPS, start_time

Address = tuple[str, int] | str | bytes
"""``(ip, port)``, or the path of a unix socket (a first byte of 0: abstract, which is per network namespace)."""

_BATCH: dict[int, int] = {socket.AF_INET: 8, socket.AF_INET6: 2, socket.AF_UNIX: 4}
_BATCH_MAX = 64
_KEEP_SECONDS = 60.0
"""A pool unused for so long is closed: each ready socket is a descriptor and keeps its namespace alive."""
_ANSWER_SECONDS = 10.0
_BACKLOG_SECONDS = 0.005


class DialError(ConnectionError):
    """A socket could not be made in that namespace; ``errno`` and the message say why."""


def started(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its pid its identity until the next boot.

    Raises ProcessLookupError when there is none.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return start_time(file.read(4096))
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(errno.ESRCH, f"no process {pid}") from None


@dataclass(slots=True)
class _Pool:
    """The ready sockets of one family in one namespace."""

    pid: int
    started: int
    family: int
    inode: int = 0
    free: deque[Socket] = field(default_factory=deque)
    waiting: deque[asyncio.Future[Socket]] = field(default_factory=deque)
    asked: int = 0
    used: float = 0.0
    dropped: bool = False


@dataclass(slots=True)
class _Asked:
    pool: _Pool
    count: int
    timeout: asyncio.TimerHandle


class Dialer:
    """Sockets in other network namespaces. Belongs to one event loop; ``close`` ends its helper."""

    def __init__(self) -> None:
        self._zygote: subprocess.Popen[bytes] | None = None
        self._channel: Socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number = 0
        self._open: dict[int, _Asked] = {}
        self._pools: dict[tuple[int, int], _Pool] = {}
        self._started: dict[int, int] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def socket(self, pid: int, family: int = socket.AF_INET) -> Socket:
        """An unconnected, non-blocking, close-on-exec stream socket in the network namespace of ``pid``.

        The first call for a pid remembers when the process started; later ones raise ProcessLookupError if another
        process has that pid by then, until ``forget``. Raises DialError when the namespace cannot be joined, also
        when it is the host's own.
        """
        pool = self._pool(pid, int(family))
        while pool.free:
            ready = pool.free.popleft()
            self._refill(pool)
            return ready
        future: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()
        pool.waiting.append(future)
        self._refill(pool)
        try:
            return await future
        except asyncio.CancelledError:
            if future in pool.waiting:
                pool.waiting.remove(future)
            elif future.done() and not future.cancelled() and future.exception() is None:
                future.result().close()
            raise

    async def listen(self, pid: int, address: tuple[str, int]) -> Socket:
        """A socket that listens on this IPv4 address and port (any port) inside the namespace of ``pid``.

        It works before the address is there. Raises what ``socket`` raises.
        """
        own = _Pool(pid, started(pid), int(socket.AF_INET))
        future: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()
        own.waiting.append(future)
        self._ask(own, 1, address)
        try:
            return await future
        except asyncio.CancelledError:
            own.dropped = True
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().close()
            raise

    async def connect(self, pid: int, address: Address) -> Socket:
        """A socket connected to ``address`` as seen from inside the namespace of ``pid``.

        Raises the OSError of connect(2), or what ``socket`` raises. It sets no deadline of its own.
        """
        loop = asyncio.get_running_loop()
        if not isinstance(address, tuple):
            return await self._connect_unix(pid, address)
        made = await self.socket(pid, socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            await loop.sock_connect(made, address)
        except BaseException:
            made.close()
            raise
        return made

    async def _connect_unix(self, pid: int, path: str | bytes) -> Socket:
        """connect(2) on a unix socket never waits: a full backlog is EAGAIN, not something in progress."""
        made = await self.socket(pid, socket.AF_UNIX)
        try:
            while True:
                try:
                    made.connect(path)
                    return made
                except BlockingIOError:
                    await asyncio.sleep(_BACKLOG_SECONDS)
        except BaseException:
            made.close()
            raise

    def forget(self, pid: int) -> None:
        """Close the ready sockets of a sandbox that has ended, and forget when its process started."""
        self._started.pop(pid, None)
        for key in [key for key in self._pools if key[0] == pid]:
            self._drop(self._pools.pop(key), ProcessLookupError(errno.ESRCH, f"process {pid} was forgotten"))

    def close(self) -> None:
        """End the helper and close every ready socket."""
        for pid in {key[0] for key in self._pools}:
            self.forget(pid)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._end_zygote()

    def _pool(self, pid: int, family: int) -> _Pool:
        now = started(pid)
        known = self._started.setdefault(pid, now)
        if known != now:
            raise ProcessLookupError(errno.ESRCH, f"another process has the pid {pid} now")
        pool = self._pools.get((pid, family))
        if pool is None:
            pool = self._pools[pid, family] = _Pool(pid, now, family)
        loop = asyncio.get_running_loop()
        pool.used = loop.time()
        if self._sweep is None:
            self._sweep = loop.call_later(_KEEP_SECONDS, self._close_unused)
        return pool

    def _close_unused(self) -> None:
        loop = asyncio.get_running_loop()
        limit = loop.time() - _KEEP_SECONDS
        for key, pool in list(self._pools.items()):
            if pool.used <= limit and not pool.waiting:
                self._drop(self._pools.pop(key), ProcessLookupError(errno.ESRCH, "unused"))
        self._sweep = loop.call_later(_KEEP_SECONDS, self._close_unused) if self._pools else None

    def _drop(self, pool: _Pool, why: OSError) -> None:
        pool.dropped = True
        while pool.free:
            pool.free.popleft().close()
        self._fail(pool, why)

    @staticmethod
    def _fail(pool: _Pool, why: OSError) -> None:
        while pool.waiting:
            future = pool.waiting.popleft()
            if not future.done():
                future.set_exception(why)

    def _refill(self, pool: _Pool) -> None:
        batch = _BATCH.get(pool.family, 2)
        missing = len(pool.waiting) - pool.asked
        if missing <= 0 and len(pool.free) + pool.asked > batch // 4:
            return
        self._ask(pool, min(max(missing, 0) + batch - 1, _BATCH_MAX))

    def _ask(self, pool: _Pool, count: int, listen: tuple[str, int] | None = None) -> None:
        self._number += 1
        timer = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, self._unanswered, self._number)
        self._open[self._number] = _Asked(pool, count, timer)
        pool.asked += count
        try:
            where = (socket.inet_aton(listen[0]), listen[1]) if listen else (bytes(4), 0)
            self._running().send(REQUEST.pack(self._number, pool.pid, pool.started, pool.family, count, *where))
        except OSError as failure:
            self._end_zygote()
            self._settle(self._number, DialError(failure.errno, f"the network helper is gone: {failure.strerror}"))

    def _unanswered(self, number: int) -> None:
        self._settle(number, DialError(errno.ETIMEDOUT, "the network helper did not answer"))

    def _settle(self, number: int, failure: OSError | None) -> _Pool | None:
        asked = self._open.pop(number, None)
        if asked is None:
            return None
        asked.timeout.cancel()
        asked.pool.asked -= asked.count
        if failure is not None:
            self._fail(asked.pool, failure)
        return asked.pool

    def _running(self) -> Socket:
        """Our end of the channel to the helper, started when there is none."""
        if self._channel is not None:
            return self._channel
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        program = Path(__file__).with_name("netns_zygote.py")
        python = getattr(sys, "_base_executable", None) or sys.executable
        with theirs:
            self._zygote = subprocess.Popen(
                [python, "-I", "-S", "-E", str(program), str(theirs.fileno())],
                env={},
                cwd="/",
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._channel = ours
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._receive)
        return ours

    def _end_zygote(self) -> None:
        channel, self._channel = self._channel, None
        zygote, self._zygote = self._zygote, None
        if channel is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(channel.fileno())
            channel.close()
        if zygote is not None:
            zygote.kill()
            zygote.wait()
        for number in list(self._open):
            self._settle(number, DialError(errno.EPIPE, "the network helper ended"))

    def _receive(self) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            data, descriptors = _receive_descriptors(channel)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        if len(data) != REPLY.size:
            for each in descriptors:
                os.close(each)
            self._end_zygote()
            return
        number, failed, step, inode = REPLY.unpack(data)
        made = [Socket(fileno=each) for each in descriptors]
        for each_made in made:
            each_made.setblocking(False)
        failure = DialError(failed, f"cannot {STEPS[step]}: {os.strerror(failed)}") if failed else None
        pool = self._settle(number, failure)
        if pool is None or pool.dropped or (pool.inode and made and pool.inode != inode):
            for each_made in made:
                each_made.close()
            if pool is not None and not pool.dropped:
                self._fail(pool, DialError(errno.ESRCH, "the process changed its network namespace"))
            return
        if made:
            pool.inode = inode
        pool.free.extend(made)
        while pool.waiting and pool.free:
            future = pool.waiting.popleft()
            if not future.done():
                future.set_result(pool.free.popleft())
        if pool.waiting:
            self._refill(pool)


def _receive_descriptors(channel: Socket) -> tuple[bytes, list[int]]:
    """One message with its descriptors, close-on-exec from the start (socket.recv_fds ignores its flags)."""
    descriptors = array.array("i")
    space = socket.CMSG_SPACE(_BATCH_MAX * descriptors.itemsize)
    data, ancillary, _flags, _from = channel.recvmsg(REPLY.size, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, carried in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(carried[: len(carried) - len(carried) % descriptors.itemsize])
    return data, list(descriptors)
