"""Fixtures of the end-to-end tests: daemons of the embedded backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.fleet import SERVERS
from tests.e2e.local_kit import LocalDaemon, local_daemon
from tests.unit.local.packages.conftest import Registry


@pytest.fixture(scope="module")
def daemon() -> Iterator[LocalDaemon]:
    """One for a whole module; nothing may be left of it at the end."""
    with local_daemon() as made:
        yield made


@pytest.fixture
def own_daemon() -> Iterator[LocalDaemon]:
    """One for this test alone, which may end and start it again. An idle minute of it lasts half a second."""
    with local_daemon("--idle-minute", "0.5") as made:
        yield made


@pytest.fixture(scope="session")
def common_daemon() -> Iterator[LocalDaemon]:
    """One for the whole worker: whoever uses it takes his sandboxes down again, and at the end nothing is left."""
    with local_daemon() as made:
        yield made


@pytest.fixture
def shelf() -> Iterator[Registry]:
    """npm and PyPI on loopback, each with versions 1.0.0 and 1.1.0 of ``tells.py`` (``@t/tells``, ``tells``)."""
    made = Registry()
    text = (SERVERS / "tells.py").read_text(encoding="utf-8")
    for version in ("1.0.0", "1.1.0"):
        program = text.replace('VERSION = "1"', f'VERSION = "{version}"')
        made.npm("@t/tells", version, {"bin/tells": program}, bin={"tells": "bin/tells"})
        made.pypi("tells", version, {"tells/__init__.py": program}, scripts="tells = tells:main")
    yield made
    made.server.shutdown()
    made.server.server_close()
