"""The real packages, from the real registries, started in a sandbox as a server would be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcpiac.local.driver import candidates, runtimes
from mcpiac.local.egress import Relay
from mcpiac.local.netns import Dialer
from mcpiac.local.packages.process import Cell
from mcpiac.local.packages.store import Store, StoredPackage
from mcpiac.local.packages.tree import remove
from mcpiac.wire import PackageItem, install_settings

pytestmark = pytest.mark.e2e

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One store for all tests of this file, and, with MCPIAC_TEST_STORE, for other runs too."""
    named = os.environ.get("MCPIAC_TEST_STORE")
    made = Path(named) if named else tmp_path_factory.mktemp("store")
    yield made
    if not named:
        remove(made)


def bought(root: Path, registry: str, name: str, version: str) -> StoredPackage:
    async def run() -> StoredPackage:
        store = Store(root, Cell(lambda: candidates()[0].path, partial(Relay, Dialer())))
        package = PackageItem(registry=registry, name=name, version=version)
        return await store.ensure(package, settings=install_settings(os.environ))

    return asyncio.run(run())


def inside(found: StoredPackage, argv: Sequence[str], said: str = "") -> subprocess.CompletedProcess[str]:
    """Run it as in a guest: no network, its folder at its guest path, the guest's interpreters."""
    known = runtimes()
    words = [
        candidates()[0].path,
        "--unshare-all",
        "--unshare-user",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--clearenv",
    ]
    words += ["--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
    words += [
        "--symlink",
        "usr/bin",
        "/bin",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--dir",
        "/home/user",
    ]
    if known.python_prefix is not None:
        words += ["--ro-bind", known.python_prefix, known.python_prefix]
    words += ["--symlink", known.python, "/run/bin/python3", "--ro-bind", str(known.node_prefix), "/opt/node"]
    words += ["--ro-bind", found.mount[0], found.mount[1], "--chdir", "/home/user"]
    words += ["--setenv", "PATH", "/run/bin:/opt/node/bin:/usr/bin:/bin", "--setenv", "HOME", "/home/user"]
    for name, value in found.env.items():
        words += ["--setenv", name, value]
    return subprocess.run(
        [*words, "--", *argv], input=said, capture_output=True, text=True, timeout=60, check=False, env={}
    )


@pytest.mark.parametrize(
    ("registry", "name", "version", "arguments"),
    [
        ("npm", "@modelcontextprotocol/server-everything", "2026.8.31", ["stdio"]),
        ("npm", "@modelcontextprotocol/server-filesystem", "2026.8.31", ["/home/user"]),
        ("pypi", "mcp-server-time", "2026.10.19", ["--local-timezone", "UTC"]),
    ],
)
def test_a_server_answers(root: Path, registry: str, name: str, version: str, arguments: list[str]) -> None:
    found = bought(root, registry, name, version)
    assert found.integrity.startswith(("sha512-", "sha256:"))
    done = inside(found, [*found.entry, *arguments], json.dumps(INITIALIZE) + "\n")
    answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert any("serverInfo" in (answer.get("result") or {}) for answer in answers), done.stderr


@pytest.mark.parametrize(
    ("registry", "name", "version", "word"),
    [
        ("npm", "supergateway", "4.0.0", "--outputTransport"),
        ("npm", "mcp-proxy", "6.7.19", "--port"),
        ("pypi", "mcp-proxy", "0.13.0", "--port"),
    ],
)
def test_a_bridge_starts(root: Path, registry: str, name: str, version: str, word: str) -> None:
    found = bought(root, registry, name, version)
    done = inside(found, [*found.entry, "--help"])
    assert word in done.stdout + done.stderr


def test_real_registries_say_what_is_missing(root: Path) -> None:
    from mcpiac.local.packages.errors import PackageError

    for registry, name, code in (
        ("npm", "@modelcontextprotocol/server-everything", "version_not_found"),
        ("pypi", "mcp-server-time", "version_not_found"),
        ("npm", "@modelcontextprotocol/server-filesystm", "package_not_found"),
    ):
        with pytest.raises(PackageError) as raised:
            bought(root, registry, name, "0.0.987")
        assert raised.value.code == code
        assert raised.value.hint
