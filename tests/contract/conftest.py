"""Providers to run the suite against: both kinds at the contract server, and the embedded daemon itself."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.server_process import ContractServer

from mcpiac.providers import registry
from mcpiac.providers.base import WireProvider

KEY = "contract-key-1234567890"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True)
class Place:
    """Where a provider finds its service, and as what."""

    name: str
    environ: dict[str, str]
    server: ContractServer | None

    @property
    def real(self) -> bool:
        return self.server is None


@contextlib.contextmanager
def short_home() -> Iterator[Path]:
    """A folder whose sockets have short paths."""
    home = Path(tempfile.mkdtemp(prefix="mcpiac-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _environ(**rest: str) -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | rest


@pytest.fixture(scope="module")
def cloud() -> Iterator[Place]:
    with ContractServer(cloud=True, key=KEY) as server:
        yield Place("sandboxer", _environ(SANDBOXER_API_URL=server.url, SANDBOXER_API_KEY=KEY), server)


@pytest.fixture(scope="module")
def local() -> Iterator[Place]:
    with short_home() as home, ContractServer(socket=home / "run" / "daemon.sock") as server:
        yield Place("local", _environ(MCPIAC_HOME=str(home)), server)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Place]:
    """The real one, in a home of its own; ended by its pid afterwards."""
    if importlib.util.find_spec("mcpiac.local.__main__") is None:
        pytest.skip("the embedded backend is not there")
    with short_home() as home:
        place = Place("local", _environ(MCPIAC_HOME=str(home)), None)
        try:
            yield place
        finally:
            _end(home)


def _end(home: Path) -> None:
    """End the daemon that has this home as its argument, and wait for it: it may be a child of ours or not."""
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (proc / "cmdline").read_bytes().split(b"\0")
            if b"mcpiac.local" not in words or str(home).encode() not in words:
                continue
            pid = int(proc.name)
            held = os.pidfd_open(pid)
            signal.pidfd_send_signal(held, signal.SIGTERM)
            assert select.select([held], [], [], 20)[0], f"the daemon {pid} does not end"
            os.close(held)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


@pytest.fixture(
    params=[
        "local",
        "cloud",
        pytest.param("daemon", marks=pytest.mark.e2e),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def provider(place: Place, anyio_backend: str) -> AsyncIterator[WireProvider]:
    async with registry.connect(place.name, environ=place.environ) as made:
        yield made
