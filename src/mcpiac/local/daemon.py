"""The daemon: one per home folder, a server on a unix socket, leaving when it is not needed any more.

``$MCPIAC_HOME`` (0700): ``run/`` (socket, lock, pid), ``log/``, ``instance.json``, ``sandboxes/``, ``store/``,
``trash/``. It holds no desired state: what a sandbox should be is in its record, so it may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import logging
import logging.handlers
import os
import resource
import secrets
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web

from mcpiac.local.api import app as api
from mcpiac.local.driver import Driver, runtimes
from mcpiac.local.egress import Relay
from mcpiac.local.fleet import Fleet, Instance
from mcpiac.local.packages.process import Cell
from mcpiac.local.packages.store import Store
from mcpiac.local.proxy import Access
from mcpiac.local.stage import Stage, first_uid

log = logging.getLogger(__name__)

LINGER_SECONDS = 60.0
"""How long the daemon stays without a sandbox."""
LOG_BYTES = 1024 * 1024
LOG_FILES = 3
SOCKET_PATH_MAX = 100
"""Bytes of a path that always fit into ``sockaddr_un`` (unix(7))."""
_LINGER_STEP = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """``tcp``: listen on this loopback address too, for whoever holds ``key``. ``idle_minute``: how many seconds a
    minute of the idle delay has (tests)."""

    home: Path
    tcp: tuple[str, int] | None = None
    key: str | None = None
    linger: float = LINGER_SECONDS
    idle_minute: float = 60.0


class AlreadyRunning(Exception):
    """Another daemon holds this home's lock."""


def prepare(home: Path) -> None:
    """Make the folders, for this user alone. Raises OSError."""
    for folder in (home, home / "run", home / "log"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(folder, 0o700)


def raise_descriptors() -> None:
    """Take as many descriptors as this process may have: ready sockets and held connections need one each, and the
    customary soft limit is 1024 (getrlimit(2))."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def lock(home: Path) -> int:
    """Hold the home's lock for as long as the returned descriptor is open. Raises AlreadyRunning."""
    fd = os.open(home / "run" / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AlreadyRunning(str(home)) from None
    return fd


def instance(home: Path) -> Instance:
    """Who this home's daemon is: made once, never changed. Raises OSError, ValueError."""
    path = home / "instance.json"
    try:
        told = json.loads(path.read_bytes())
        return Instance(str(told["id"]), str(told["key"]))
    except FileNotFoundError:
        made = Instance(secrets.token_hex(8), secrets.token_hex(32))
    fresh = home / "instance.json.new"
    with open(fresh, "w", encoding="ascii", opener=_private) as file:
        json.dump({"id": made.id, "key": made.key}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    return made


class _Log(logging.handlers.RotatingFileHandler):
    """Each file of it is for its user alone."""

    def _open(self) -> io.TextIOWrapper:
        made = open(self.baseFilename, self.mode, encoding=self.encoding, opener=_private)  # noqa: SIM115
        assert isinstance(made, io.TextIOWrapper)
        return made


def keep_log(home: Path) -> None:
    """Everything is said in ``log/daemon.log``: rotated, bounded, without secrets, tokens and bodies."""
    handler = _Log(home / "log" / "daemon.log", maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
    form = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    form.converter = time.gmtime
    handler.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def enter_stage(home: Path) -> Stage:
    """As root: a mount namespace of our own. Raises StageError where this root may not have one."""
    stage = Stage()
    if os.geteuid() == 0:
        known = runtimes()
        needed = [str(home), os.path.realpath(__file__), known.python_prefix or "/usr", known.node_prefix or "/usr"]
        stage.enter(needed)
    return stage


class Daemon:
    """One run of the daemon."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until told to end, or until nobody needs it. ``ready`` is called when it listens."""
        options, home = self._options, self._options.home
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        stage = enter_stage(home)
        fleet = Fleet(home, instance(home), stage, idle_minute=options.idle_minute)
        fleet.proxy.access = _access
        store = Store(home / "store", _cell(fleet, stage))
        await fleet.open()
        application = api.make(fleet, store, key=options.key, end=self._stop)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        await web.SockSite(runner, unix_socket(home / "run")).start()
        if options.tcp is not None:
            await self._listen_tcp(runner, options.tcp)
        log.info("ready: instance %s, pid %d", fleet.instance.id, os.getpid())
        ready()
        try:
            await self._needed(fleet)
        finally:
            log.info("ending")
            (home / "run" / "daemon.sock").unlink(missing_ok=True)
            (home / "run" / "tcp").unlink(missing_ok=True)
            await runner.cleanup()
            await store.close()
            await fleet.close()

    async def _listen_tcp(self, runner: web.AppRunner, address: tuple[str, int]) -> None:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
        await web.SockSite(runner, made).start()
        host, port = made.getsockname()[:2]
        _write(self._options.home / "run" / "tcp", f"{host}:{port}\n")

    async def _needed(self, fleet: Fleet) -> None:
        """Until the end is asked for, or there was no sandbox for ``linger`` seconds."""
        alone: float | None = None
        step = min(_LINGER_STEP, max(self._options.linger, 0.05))
        seldom = min(10 * _LINGER_STEP, max(self._options.linger, 0.05))
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(step if fleet.empty else seldom):
                    await self._stop.wait()
            except TimeoutError:
                now = time.monotonic()
                alone = (alone or now) if fleet.empty else None
                if alone is not None and now - alone >= self._options.linger:
                    log.info("no sandbox for %.0f s", now - alone)
                    return


def unix_socket(run: Path) -> socket.socket:
    """A listening unix socket ``daemon.sock`` in ``run``, whatever the length of its path. The lock is ours, so one
    that is there is a dead daemon's."""
    path = run / "daemon.sock"
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o177)
    try:
        made.bind(str(path) if len(os.fsencode(path)) <= SOCKET_PATH_MAX else f"/proc/self/fd/{folder}/daemon.sock")
    finally:
        os.umask(before)
        os.close(folder)
    made.listen(256)
    return made


def _cell(fleet: Fleet, stage: Stage) -> Cell:
    """How the package store starts its sandboxes."""
    uid = first_uid(fleet.instance.id) if stage.active else None
    driver: Driver = fleet.driver
    return Cell(lambda: driver.bwrap(uid), partial(Relay, fleet.dialer), uid=uid, show=stage.show)


def _access(line: Access) -> None:
    log.info(
        "%s:%d %s %s %d in %d out %d %.1f ms%s",
        line.sandbox,
        line.port,
        line.method,
        line.path,
        line.status,
        line.received,
        line.sent,
        line.seconds * 1000,
        " aborted" if line.aborted else "",
    )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)


def remember_pid(home: Path) -> None:
    """For ``daemon status`` and ``daemon stop``: who holds the lock."""
    _write(home / "run" / "daemon.pid", f"{os.getpid()}\n")
