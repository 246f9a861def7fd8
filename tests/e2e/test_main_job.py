"""The main job on real servers, seen by the official MCP client: the acceptance of the whole product."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from tests.e2e.fleet import Fleet

pytestmark = pytest.mark.e2e

FILES_TOKEN = "files-canary-7f1c90aa"
EVERYTHING_TOKEN = "everything-canary-2b8d41ce"
NOTE = "only the files server can read this\n"

DEMO = f"""\
stack: demo
provider: local
defaults: {{size: small, idle: 15}}
servers:
  files:
    package: npm:@modelcontextprotocol/server-filesystem
    version: 2026.8.31
    args: [/home/user/project]
    files:
      /home/user/project/notes.txt: {{content: {json.dumps(NOTE)}}}
    secrets: {{FILES_SERVER_TOKEN: env:FILES_SERVER_TOKEN}}
  everything:
    package: npm:@modelcontextprotocol/server-everything
    version: 2026.8.31
    args: [stdio]
    secrets: {{EVERYTHING_SERVER_TOKEN: env:EVERYTHING_SERVER_TOKEN}}
    idle: 1
  clock:
    package: pypi:mcp-server-time
    version: 2026.10.19
  everything-http:
    package: npm:@modelcontextprotocol/server-everything
    version: 2026.8.31
    args: [streamableHttp]
    transport: http
  everything-gateway:
    package: npm:@modelcontextprotocol/server-everything
    version: 2026.8.31
    args: [stdio]
    bridge: {{name: supergateway}}
"""


@contextlib.asynccontextmanager
async def session(server: dict[str, Any], token: str | None = None) -> AsyncIterator[ClientSession]:
    """A session of the official client, the token in the cookie as the product's own advice says."""
    headers = {"Cookie": f"__sbx_auth={token or server['token']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as client,
        streamable_http_client(server["url"], http_client=client) as (reader, writer, *_),
        ClientSession(reader, writer) as mcp,
    ):
        await mcp.initialize()
        yield mcp


def text(result: Any) -> str:
    return "".join(part.text for part in result.content if part.type == "text")


def status_code(url: str, headers: dict[str, str]) -> int:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    return httpx2.post(url, json=message, headers=accept | headers, timeout=60).status_code


def inside(home: Path) -> list[psutil.Process]:
    """Every process that has the daemon's folder in its arguments or its root in it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(home) in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("main")
    fleet = Fleet(
        folder / "project",
        folder / "home",
        {"FILES_SERVER_TOKEN": FILES_TOKEN, "EVERYTHING_SERVER_TOKEN": EVERYTHING_TOKEN},
    )
    fleet.write(DEMO)
    fleet.run("apply", "-y")
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def servers(fleet: Fleet) -> dict[str, Any]:
    return fleet.output()


def test_the_plan_after_an_apply_is_empty(fleet: Fleet) -> None:
    assert "No changes" in fleet.run("plan", "--detailed-exitcode").stdout


def test_the_filesystem_server_reads_the_declared_file(servers: dict[str, Any]) -> None:
    async def main() -> None:
        async with session(servers["files"]) as mcp:
            names = [tool.name for tool in (await mcp.list_tools()).tools]
            assert "read_text_file" in names
            told = await mcp.call_tool("read_text_file", {"path": "/home/user/project/notes.txt"})
            assert text(told) == NOTE

    asyncio.run(main())


@pytest.mark.parametrize("name", ["everything", "everything-http", "everything-gateway"])
def test_everything_echoes(servers: dict[str, Any], name: str) -> None:
    async def main() -> None:
        async with session(servers[name]) as mcp:
            told = await mcp.call_tool("echo", {"message": "grüße 🌍"})
            assert "grüße 🌍" in text(told)

    asyncio.run(main())


def test_a_server_sees_its_own_secret_and_no_other(servers: dict[str, Any]) -> None:
    async def main() -> None:
        async with session(servers["everything"]) as mcp:
            told = text(await mcp.call_tool("get-env", {}))
            assert EVERYTHING_TOKEN in told
            assert "FILES_SERVER_TOKEN" not in told
            assert FILES_TOKEN not in told

    asyncio.run(main())


def test_a_python_server_works_the_same(servers: dict[str, Any]) -> None:
    async def main() -> None:
        async with session(servers["clock"]) as mcp:
            told = text(await mcp.call_tool("get_current_time", {"timezone": "Europe/Berlin"}))
            assert "Europe/Berlin" in told

    asyncio.run(main())


@pytest.mark.parametrize("name", ["files", "everything", "clock", "everything-http", "everything-gateway"])
def test_only_the_own_token_opens_a_url(servers: dict[str, Any], name: str) -> None:
    url = servers[name]["url"]
    assert status_code(url, {}) == 401
    assert status_code(url, {"Cookie": "__sbx_auth=wrong"}) == 401
    for other, server in servers.items():
        refused = status_code(url, {"Cookie": f"__sbx_auth={server['token']}"}) == 401
        assert refused == (other != name)


def test_the_fleet_is_proved_isolated(fleet: Fleet) -> None:
    assert "hold" in fleet.run("verify").stdout


def test_no_secret_and_no_token_rests_in_the_project(fleet: Fleet, servers: dict[str, Any]) -> None:
    hidden = [FILES_TOKEN, EVERYTHING_TOKEN, *(server["token"] for server in servers.values())]
    for path in fleet.root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [h for h in hidden if h.encode() in data], path


def test_an_idle_server_pauses_and_a_call_in_the_open_session_wakes_it(fleet: Fleet, servers: dict[str, Any]) -> None:
    def processes() -> list[str]:
        """Process id and program of the bridge and of the server behind it."""
        look = "for p in /proc/[0-9]*; do echo $p $(tr '\\0' ' ' < $p/cmdline); done"
        told = fleet.run("exec", "everything", "--", "sh", "-c", look).stdout.splitlines()
        return [line for line in told if "everything" in line and "/cmdline" not in line]

    def state() -> str:
        return fleet.json("status")["servers"]["demo/everything"]["state"]

    async def main() -> None:
        async with session(servers["everything"]) as mcp:
            first = text(await mcp.call_tool("echo", {"message": "before"}))
            pids = processes()
            assert pids
            deadline = time.monotonic() + 150
            while state() != "paused":
                assert time.monotonic() < deadline, "it never paused"
                await asyncio.sleep(0.5)
            before = time.monotonic()
            second = text(await mcp.call_tool("echo", {"message": "after"}))
            assert time.monotonic() - before < 5
            assert ("before" in first, "after" in second) == (True, True)
            assert state() == "running"
            assert processes() == pids

    asyncio.run(main())


def test_destroy_leaves_nothing(fleet: Fleet, servers: dict[str, Any]) -> None:
    ports = [int(server["url"].split(":")[2].split("/")[0]) for server in servers.values()]
    fleet.run("destroy", "-y")
    assert "demo/" not in json.dumps(fleet.json("status"))
    state = json.loads((fleet.root / "state" / "demo.json").read_text())
    assert (state["sandboxes"], state["servers"]) == ({}, {})
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert list((fleet.home / "sandboxes").iterdir()) == []
    assert str(fleet.home) not in Path("/proc/self/mounts").read_text()
    fleet.run("daemon", "stop")
    assert inside(fleet.home) == []
