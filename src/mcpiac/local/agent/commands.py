"""Commands: run one while somebody listens, or detached with its output in files."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable

from .frames import CHUNK, pack
from .loop import Connection, Loop, Timer
from .spawn import BASE_ENV, HOME, ended, kill_tree, spawn

FOLDER = f"{HOME}/.mcpiac/processes"
MAX_KEPT = 8 * 1024 * 1024
"""Bytes kept of each output of a detached command; the rest is read and dropped."""
MAX_FINISHED = 100
"""So many finished detached commands are remembered, and their output kept."""
_TURN = 16
"""Chunks read from one pipe before another descriptor gets its turn."""

Sink = Callable[[str, bytes], None]
Done = Callable[[int, "str | None", bool], None]


def shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def work_directory(cwd: object) -> str:
    """``cwd`` as the API means it: relative to /home/user."""
    return os.path.join(HOME, cwd) if isinstance(cwd, str) and cwd else HOME


class Process:
    """A running command: its pipes are read into ``sink``, its end is told to ``done(code, signal, timed_out)``.

    ``lingering``: the pipes are read until nobody holds them any more, also after the command itself has ended.
    """

    def __init__(
        self,
        loop: Loop,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        *,
        timeout: float | None,
        sink: Sink,
        done: Done,
        lingering: bool = False,
    ) -> None:
        self.pid, out, err = spawn(argv, env, cwd)
        self._loop = loop
        self._sink = sink
        self._done: Done | None = done
        self._pipes = {"stdout": out, "stderr": err}
        self._lingering = lingering
        self._held = False
        self._status: int | None = None
        self._timed_out = False
        self._timer: Timer | None = loop.later(timeout, self._time_out) if timeout is not None else None
        loop.on_exit(self.pid, self._exited)
        self._listen()

    @property
    def running(self) -> bool:
        return self._status is None

    @property
    def held(self) -> bool:
        return self._held

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._status is None:
            kill_tree(self.pid, number)

    def hold(self) -> None:
        """Read no more output until ``go_on``."""
        if not self._held:
            self._held = True
            for fd in self._pipes.values():
                self._loop.unwatch(fd)

    def go_on(self) -> None:
        if self._held:
            self._held = False
            self._listen()
            self._settle()

    def _listen(self) -> None:
        for name, fd in self._pipes.items():
            self._loop.watch(fd, functools.partial(self._ready, name))

    def _ready(self, name: str, _events: int) -> None:
        self._read(name)

    def _read(self, name: str) -> bool:
        """Read a turn's worth; True when there may be more at once."""
        fd = self._pipes.get(name)
        if fd is None:
            return False
        for _ in range(_TURN):
            try:
                data = os.read(fd, CHUNK)
            except BlockingIOError:
                return False
            except OSError:
                data = b""
            if not data:
                del self._pipes[name]
                self._loop.unwatch(fd)
                os.close(fd)
                return False
            self._sink(name, data)
            if self.held:
                return False
        return True

    def _time_out(self) -> None:
        self._timed_out = True
        self.kill()

    def _exited(self, status: int) -> None:
        self._status = status
        if self._timer is not None:
            self._timer.cancel()
        self._settle()

    def _settle(self) -> None:
        """After the end: what is in the pipes still, then the news of the end."""
        if self._status is None or self._done is None or self._held:
            return
        for name in list(self._pipes):
            while self._read(name):
                pass
            if self.held:
                return
        if not self._lingering:
            for fd in self._pipes.values():
                self._loop.unwatch(fd)
                os.close(fd)
            self._pipes.clear()
        done, self._done = self._done, None
        code, killed_by = ended(self._status)
        done(code, killed_by, self._timed_out)


class _Kept:
    """A detached command: what is remembered of it."""

    def __init__(self, number: int, command: str, cwd: str) -> None:
        self.number = number
        self.command = command
        self.cwd = cwd
        self.started = time.time()
        self.finished: float | None = None
        self.code: int | None = None
        self.signal: str | None = None
        self.timed_out = False
        self.process: Process | None = None
        self.files: dict[str, int] = {}
        self.sizes = {"stdout": 0, "stderr": 0}
        self.followers: list[Callable[[], None]] = []

    def path(self, stream: str) -> str:
        return f"{FOLDER}/{self.number}.{'log' if stream == 'stdout' else 'err'}"

    def write(self, stream: str, data: bytes) -> None:
        room = MAX_KEPT - self.sizes[stream]
        if room > 0:
            try:
                os.write(self.files[stream], data[:room])
            except OSError:
                return
            self.sizes[stream] += min(len(data), room)
        for tell in list(self.followers):
            tell()

    def view(self) -> dict[str, object]:
        return {
            "processId": self.number,
            "pid": self.process.pid if self.process else None,
            "command": self.command,
            "cwd": self.cwd,
            "running": self.finished is None,
            "status": "running" if self.finished is None else "exited",
            "exitCode": self.code,
            "signal": self.signal,
            "timedOut": self.timed_out,
            "startedAt": self.started,
            "finishedAt": self.finished,
            "logPath": self.path("stdout"),
            "errLogPath": self.path("stderr"),
        }


class Commands:
    """All commands of the sandbox. ``changed`` is called when the number of running ones changes."""

    def __init__(self, loop: Loop, env: dict[str, str], changed: Callable[[], None]) -> None:
        self._loop = loop
        self._env = env
        self._changed = changed
        self._kept: dict[int, _Kept] = {}
        self._last = int(time.time())

    @property
    def detached_running(self) -> int:
        return sum(1 for each in self._kept.values() if each.finished is None)

    def _environment(self, extra: object) -> dict[str, str]:
        env = BASE_ENV | self._env
        if isinstance(extra, dict):
            env.update({str(k): str(v) for k, v in extra.items()})
        return env

    def run(self, connection: Connection, ask: dict) -> None:  # type: ignore[type-arg]
        """Run a command to its end, telling its output; it is killed when the connection breaks."""

        def sink(stream: str, data: bytes) -> None:
            connection.send({"event": stream, "data": pack(data)})
            if connection.full:
                process.hold()

        def done(code: int, name: str | None, timed_out: bool) -> None:
            connection.on_close = None
            connection.send({"event": "exit", "exitCode": code, "signal": name, "timedOut": timed_out}, last=True)

        process = Process(
            self._loop,
            [shell(), "-c", str(ask.get("command"))],
            self._environment(ask.get("env")),
            work_directory(ask.get("cwd")),
            timeout=float(ask.get("timeout") or 30),
            sink=sink,
            done=done,
        )
        connection.on_close = process.kill
        connection.on_drain = process.go_on
        connection.send({"event": "started", "pid": process.pid})

    def start(self, ask: dict) -> dict[str, object]:  # type: ignore[type-arg]
        """Start a detached command."""
        os.makedirs(FOLDER, exist_ok=True)
        self._last = max(self._last + 1, int(time.time()))
        kept = _Kept(self._last, str(ask.get("command")), work_directory(ask.get("cwd")))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            for stream in kept.sizes:
                kept.files[stream] = os.open(kept.path(stream), flags, 0o600)

            def done(code: int, name: str | None, timed_out: bool) -> None:
                kept.code, kept.signal, kept.timed_out = code, name, timed_out
                kept.finished = time.time()
                for tell in list(kept.followers):
                    tell()
                self._forget_old()
                self._changed()

            kept.process = Process(
                self._loop,
                [shell(), "-c", kept.command],
                self._environment(ask.get("env")),
                kept.cwd,
                timeout=float(ask["timeout"]) if ask.get("timeout") else None,
                sink=kept.write,
                done=done,
                lingering=True,
            )
        except OSError:
            for fd in kept.files.values():
                os.close(fd)
            raise
        self._kept[kept.number] = kept
        self._changed()
        return kept.view()

    def _forget_old(self) -> None:
        finished = [each for each in self._kept.values() if each.finished is not None]
        for each in finished[: max(0, len(finished) - MAX_FINISHED)]:
            del self._kept[each.number]
            for stream, fd in each.files.items():
                os.close(fd)
                try:
                    os.unlink(each.path(stream))
                except OSError:
                    pass

    def status(self, ask: dict) -> dict[str, object]:  # type: ignore[type-arg]
        """How a detached command does, with its output from the asked offsets on, or the tail of it."""
        kept = self._find(ask)
        answer = kept.view()
        for stream in kept.sizes:
            offset = ask.get(f"{stream}Offset")
            tail = min(int(ask.get("tailBytes") or CHUNK), 8 * CHUNK)
            start = min(int(offset), kept.sizes[stream]) if offset is not None else max(0, kept.sizes[stream] - tail)
            data = _read_at(kept.path(stream), start, 8 * CHUNK)
            answer[stream] = pack(data)
            answer[f"{stream}Offset"] = start
            answer[f"{stream}NextOffset"] = start + len(data)
        answer["more"] = any(answer[f"{s}NextOffset"] < kept.sizes[s] for s in kept.sizes)  # type: ignore[operator]
        return answer

    def follow(self, connection: Connection, ask: dict) -> None:  # type: ignore[type-arg]
        """The output of a detached command as it comes, then its end; closing the connection ends nothing."""
        kept = self._find(ask)
        at = {stream: min(int(ask.get(f"{stream}Offset") or 0), kept.sizes[stream]) for stream in kept.sizes}

        def tell() -> None:
            for stream in at:
                while at[stream] < kept.sizes[stream] and not connection.full and not connection.closed:
                    data = _read_at(kept.path(stream), at[stream], CHUNK)
                    if not data:
                        break
                    at[stream] += len(data)
                    connection.send({"event": stream, "data": pack(data), "nextOffset": at[stream]})
            if kept.finished is not None and not connection.full:
                stop()
                connection.send(
                    {"event": "exit", **kept.view(), **{f"{s}Offset": n for s, n in at.items()}}, last=True
                )

        def stop() -> None:
            connection.on_close = None
            if tell in kept.followers:
                kept.followers.remove(tell)

        connection.on_close = stop
        connection.on_drain = tell
        kept.followers.append(tell)
        connection.send({"event": "attached", "processId": kept.number, **{f"{s}Offset": n for s, n in at.items()}})
        tell()

    def kill(self, ask: dict) -> dict[str, object]:  # type: ignore[type-arg]
        """Kill a detached command with all its descendants."""
        kept = self._find(ask)
        signaled = kept.finished is None and kept.process is not None
        if signaled and kept.process is not None:
            kept.process.kill()
        return {"processId": kept.number, "signaled": signaled}

    def _find(self, ask: dict) -> _Kept:  # type: ignore[type-arg]
        kept = self._kept.get(int(ask.get("processId") or 0))
        if kept is None:
            raise LookupError("no such process")
        return kept


def _read_at(path: str, start: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, start)
    except OSError:
        return b""
    finally:
        os.close(fd)
