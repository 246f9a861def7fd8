"""A server process: its pipes, its end, and the end of everything that it started.

Each server leads a session and process group of its own and dies with the bridge. Descendants that
left the group come back to the bridge as their reaper, and are known by a mark in their environment.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from collections import deque
from typing import Protocol

from . import linux
from .core import Ended
from .stderr import Masker, StderrLog

MARK = "MCPIAC_BRIDGE_CHILD"
_READ = 1 << 18
_FULL = 64 << 20  # bytes that wait for a server that does not read
_STDIN_CLOSED = 1.0  # seconds from closing stdin to TERM
_TERM = 2.0  # seconds from TERM to KILL
_LEFTOVER = 0.3  # seconds from TERM to KILL for what outlives the server
_STATUS = 0.25  # seconds to wait for the other of exit and end of stdout
_SWEEPS = 40


class Owner(Protocol):
    def output(self, child: int, data: bytes) -> None: ...
    def ended(self, child: int, ended: Ended) -> None: ...
    def full(self, child: int, on: bool) -> None: ...
    def reaped(self, child: int) -> None: ...
    def log(self, text: str) -> None: ...
    def now(self) -> float: ...


class Server:
    """One child. `start` first; `end` may be called at any time and more than once."""

    def __init__(
        self, owner: Owner, loop: asyncio.AbstractEventLoop, number: int, command: tuple[str, ...], token: str
    ) -> None:
        self._owner = owner
        self._loop = loop
        self.number = number
        self._command = command
        self._mark = f"{MARK}={token}-{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: StderrLog
        self._fds: dict[str, int] = {}
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._full = False
        self._paused = False
        self._status: str | None = None
        self._lost = "closed its stdout"
        self._told = False
        self._ending = False
        self._gone = False
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, masker: Masker) -> None:
        self._stderr = StderrLog(masker)
        environment = dict(os.environ)
        name, _, value = self._mark.partition("=")
        environment[name] = value
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                start_new_session=True,
                preexec_fn=linux.die_with_parent,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            why = exc.strerror if isinstance(exc, OSError) and exc.strerror else type(exc).__name__
            self._status = f"cannot start {os.path.basename(self._command[0])}: {why}"
            self._gone = True
            self._loop.call_soon(self._tell)
            self._loop.call_soon(self._owner.reaped, self.number)
            return
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for kind, pipe in (("in", process.stdin), ("out", process.stdout), ("err", process.stderr)):
            fd = os.dup(pipe.fileno())
            pipe.close()
            os.set_blocking(fd, False)
            self._fds[kind] = fd
        process.stdin = process.stdout = process.stderr = None
        self._loop.add_reader(self._fds["out"], self._read_out)
        self._loop.add_reader(self._fds["err"], self._read_err)

    # stdin

    def write(self, data: bytes) -> None:
        fd = self._fds.get("in")
        if fd is None:
            return
        if not self._queue:
            try:
                sent = os.write(fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._deaf()
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(fd, self._write_more)
        self._queue.append(data)
        self._queued += len(data)
        if self._queued > _FULL and not self._full:
            self._full = True
            self._loop.call_soon(self._owner.full, self.number, True)

    def _write_more(self) -> None:
        fd = self._fds.get("in")
        while fd is not None and self._queue:
            data = self._queue[0]
            try:
                sent = os.write(fd, data)
            except BlockingIOError:
                break
            except OSError:
                self._deaf()
                return
            self._queued -= sent
            if sent == len(data):
                self._queue.popleft()
            else:
                self._queue[0] = data[sent:]
        if fd is not None and not self._queue:
            self._loop.remove_writer(fd)
        if self._full and self._queued < _FULL // 2:
            self._full = False
            self._owner.full(self.number, False)

    def _deaf(self) -> None:
        """It has closed its stdin: it can be told nothing more, so no further answer can come."""
        self._close("in")
        self._lost = "closed its stdin"
        if not self._told:
            self._later(_STATUS, self._tell)

    # stdout and stderr

    def reading(self, on: bool) -> None:
        fd = self._fds.get("out")
        self._paused = not on
        if fd is not None:
            if on:
                self._loop.add_reader(fd, self._read_out)
            else:
                self._loop.remove_reader(fd)

    def _read_out(self) -> None:
        data = self._read("out")
        if data:
            self._owner.output(self.number, data)
        elif data is not None:
            self._close("out")
            self._maybe_tell()

    def _read_err(self) -> None:
        data = self._read("err")
        if data:
            for line in self._stderr.feed(data, self._owner.now()):
                self._owner.log(f"child {self.number}: stderr: {line}")
        elif data is not None:
            self._close("err")

    def _read(self, kind: str) -> bytes | None:
        """Bytes, b"" at the end, None when there is nothing now."""
        fd = self._fds.get(kind)
        if fd is None:
            return None
        try:
            return os.read(fd, _READ)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def _close(self, kind: str) -> None:
        fd = self._fds.pop(kind, None)
        if fd is None:
            return
        if kind == "in":
            self._loop.remove_writer(fd)
            self._queue.clear()
            self._queued = 0
        else:
            self._loop.remove_reader(fd)
        os.close(fd)

    # the end

    def check(self) -> None:
        """SIGCHLD: has this one exited? It stays a zombie, so that its group keeps its number."""
        if self._process is None or self._status is not None:
            return
        try:
            found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            self._status = "ended"
        else:
            if found is None:
                return
            exited = found.si_code == os.CLD_EXITED
            self._status = _status(found.si_status) if exited else _signal(found.si_status)
        if self._ending:
            self._kill_group()
        else:
            self._maybe_tell()

    def _maybe_tell(self) -> None:
        """Both signs of the end are there, or one and a moment without the other."""
        if self._told:
            return
        if self._status is not None and "out" not in self._fds:
            self._tell()
        elif not self._paused:
            self._later(_STATUS, self._tell)

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        for kind in ("out", "err"):
            self._drain(kind)
        reason = self._stderr.reason()
        self._owner.ended(self.number, Ended(self._status or self._lost, reason))

    def _drain(self, kind: str) -> None:
        """What is still in the pipe of a child that has ended."""
        for _ in range(1 << 10):
            data = self._read(kind)
            if not data:
                return
            if kind == "out":
                self._owner.output(self.number, data)
            else:
                self._stderr.feed(data, self._owner.now())

    def end(self) -> None:
        if self._ending or self._gone:
            return
        self._ending = self._told = True
        self._close("in")
        self._close("out")
        if self._status is not None:
            self._kill_group()
        else:
            self._later(_STDIN_CLOSED, lambda: self._signal_group(signal.SIGTERM))
            self._later(_STDIN_CLOSED + _TERM, lambda: self._signal_group(signal.SIGKILL))

    def _kill_group(self) -> None:
        """The server has exited; the rest of its group follows."""
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        self._signal_group(signal.SIGTERM)
        if self._alone():
            self._last()
        else:
            self._later(_LEFTOVER, self._last)

    def _alone(self) -> bool:
        """Whether nothing but the zombie is left of the group, as far as can be seen cheaply."""
        mine = self._orphans()
        return "err" not in self._fds and not mine

    def _last(self) -> None:
        self._signal_group(signal.SIGKILL)
        if self._process is not None:
            try:
                os.waitpid(self._process.pid, 0)
            except ChildProcessError:
                pass
            self._process.returncode = 0
        self._sweep(_SWEEPS)

    def _sweep(self, left: int) -> None:
        """Ends descendants that left the group: they are the bridge's own children now."""
        found = self._orphans()
        for pid in found:
            _kill(pid, signal.SIGKILL)
        if left > 0 and (found or left == _SWEEPS):
            self._later(0.02, lambda: self._sweep(left - 1))
            return
        self._close("err")
        self._gone = True
        self._owner.reaped(self.number)

    def _orphans(self) -> list[int]:
        mark = self._mark.encode()
        return [p for p in linux.children() if p != self.pid and linux.marked(p, mark)]

    def _signal_group(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, number)
            except OSError as exc:
                if exc.errno not in (errno.ESRCH, errno.EPERM):
                    raise

    def _later(self, seconds: float, what) -> None:  # type: ignore[no-untyped-def]
        self._timers.append(self._loop.call_later(seconds, what))


def _status(code: int) -> str:
    return f"exit {code}"


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass
