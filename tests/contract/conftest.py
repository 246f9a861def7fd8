"""Providers to run the suite against: both kinds at the contract server, and the embedded daemon itself."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import tempfile
import time
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
    """Only the daemon that has this home as its argument."""
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (proc / "cmdline").read_bytes().split(b"\0")
            if str(home).encode() in words and any(b"mcpiac" in word for word in words):
                os.kill(int(proc.name), signal.SIGTERM)
                deadline = time.monotonic() + 20
                while proc.exists() and time.monotonic() < deadline:
                    time.sleep(0.02)


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
