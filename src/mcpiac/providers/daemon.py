"""Finds the local daemon's socket, and starts the daemon where nobody listens on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from mcpiac.model.diagnostic import Diagnosed, error

START_SECONDS = 20.0
SOCKET_PATH_MAX = 100
"""Bytes of a socket's path that always fit into ``sockaddr_un`` (unix(7): 108 with the ending zero)."""

_KEPT = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TMPDIR|XDG_(DATA|CACHE|CONFIG|RUNTIME)_\w+|MCPIAC_HOME")
"""What of the environment the daemon starts with. What a client's installs need is sent with each of them
(``wire.install_settings``); no secret of a stack reaches it at all."""


def home(environ: Mapping[str, str]) -> Path:
    """The folder of the embedded backend: ``$MCPIAC_HOME``, else ``~/.local/share/mcpiac``."""
    given = environ.get("MCPIAC_HOME")
    if given:
        return Path(given).expanduser().absolute()
    return Path(environ.get("HOME") or os.path.expanduser("~"), ".local", "share", "mcpiac")


class Daemon:
    """The daemon of one home folder, as a client sees it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.home = home(environ)
        self._environ = environ
        self._folder: int | None = None
        self._lock = asyncio.Lock()

    @property
    def socket(self) -> str:
        """A path that can be connected to, however long the home's own is."""
        path = str(self.home / "run" / "daemon.sock")
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return path
        if self._folder is None:
            (self.home / "run").mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = os.open(self.home / "run", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder}/daemon.sock"

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def listens(self) -> bool:
        """Whether somebody takes connections there."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(2)
            try:
                probe.connect(self.socket)
            except OSError:
                return False
            return True

    async def ensure(self) -> None:
        """Start it unless it listens, and wait until it does. Raises ``Diagnosed`` with its own last words."""
        async with self._lock:
            if not self.listens():
                await self._start()

    async def _start(self) -> None:
        if sys.platform != "linux":
            raise error(
                "local-needs-linux",
                "the provider `local` runs on Linux (and WSL2) only",
                hint="write `provider: sandboxer`, or run mcpiac on Linux",
            )
        process = self._spawn()
        deadline, pause = time.monotonic() + START_SECONDS, 0.005
        while not self.listens():
            ended = process.poll()
            if ended is None and time.monotonic() >= deadline:
                process.kill()
                process.wait()
            if (ended is not None and ended != 0) or time.monotonic() >= deadline:
                raise self._failed(ended)
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, 0.1)

    def _spawn(self) -> subprocess.Popen[bytes]:
        output = self._output()
        with contextlib.suppress(FileNotFoundError):
            output.unlink()
        with open(output, "wb", opener=_private) as said:
            return subprocess.Popen(  # detached: it outlives this command
                [sys.executable, "-P", "-m", "mcpiac.local", "--home", str(self.home)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd="/",
                env={name: value for name, value in self._environ.items() if _KEPT.fullmatch(name)},
                start_new_session=True,
            )

    def _output(self) -> Path:
        run = self.home / "run"
        try:
            run.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            raise error(
                "daemon-home",
                f"cannot make {run}: {fault.strerror}",
                hint="set MCPIAC_HOME to a folder of yours",
            ) from None
        return run / "start.log"

    def _failed(self, ended: int | None) -> Diagnosed:
        try:
            lines = self._output().read_text("utf-8", "replace").splitlines()[-12:]
        except OSError:
            lines = []
        how = f"did not answer within {START_SECONDS:g} s" if ended is None else f"exited with {ended}"
        return error(
            "daemon-not-starting",
            f"the local daemon {how}",
            detail="\n".join(lines),
            hint="run `mcpiac doctor`",
        )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
