"""A project of light stand-in servers over a daemon that others use too: plan, apply, and what is real then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.e2e.fleet import SERVERS, Fleet
from tests.e2e.local_kit import LocalDaemon

SERVER = "/home/user/server.py"
Servers = Mapping[str, Mapping[str, Any]]


def stand_in(script: str = "tells.py", **keys: Any) -> dict[str, Any]:
    """A server's entry: one of the test servers, written into its guest. ``keys`` are further keys of it."""
    files = {SERVER: {"content": (SERVERS / script).read_text(encoding="utf-8")}, **keys.pop("files", {})}
    return {"command": ["python3", SERVER], "files": files, **keys}


@dataclass
class Planned:
    """What ``plan --json --detailed-exitcode`` told: the exit code, and per server its change and its actions."""

    code: int
    plan: dict[str, Any]

    @property
    def actions(self) -> dict[str, list[str]]:
        """Server → its steps in order, without its own name: ``exec``, ``host-9000``."""
        found: dict[str, list[str]] = {}
        for action in self.plan["actions"]:
            server, _, step = action["id"].partition(".")
            found.setdefault(server, []).append(step)
        return found

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        return {change["server"]: change for change in self.plan["changes"]}


class Project(Fleet):
    """A project folder whose daemon is ``daemon``: others' sandboxes live there too, so it is never ended here."""

    def __init__(self, root: Path, daemon: LocalDaemon, secrets: Mapping[str, str] | None = None) -> None:
        super().__init__(root, daemon.home, dict(secrets or {}))
        self.daemon = daemon
        self.settings: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | self.settings

    def registry(self, url: str) -> None:
        """Take packages from the registry of a test from now on, named as a user names his: by files in his home."""
        home = self.root / "user"
        (home / ".config" / "pip").mkdir(parents=True, exist_ok=True)
        (home / ".npmrc").write_text(f"registry={url}/npm/\nfetch-retries=0\n")
        (home / ".config" / "pip" / "pip.conf").write_text(f"[global]\nindex-url = {url}/simple\n")
        named = {"HOME": str(home), "PIP_CONFIG_FILE": str(home / ".config" / "pip" / "pip.conf")}
        self.settings = {**named, "PIP_FIND_LINKS": ""}

    def declare(self, servers: Servers, stack: str = "demo") -> None:
        """Write the stack file. JSON is YAML."""
        self.write(json.dumps({"stack": stack, "provider": "local", "servers": servers}, indent=1), stack)

    def plan(self, *words: str) -> Planned:
        done = self.run("plan", "--json", "--detailed-exitcode", *words, ok=None)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        plans = [line for line in lines if line["type"] == "plan"]
        assert len(plans) == 1, done.stdout + done.stderr
        return Planned(done.returncode, plans[0])

    def settled(self) -> None:
        """The plan is empty: nothing to do, and it says so by its exit code."""
        planned = self.plan()
        assert planned.actions == {}
        assert planned.code == 0

    def record(self, server: str, stack: str = "demo") -> dict[str, Any]:
        """The recorded sandbox of a server."""
        state = json.loads((self.root / "state" / f"{stack}.json").read_text())
        found: dict[str, Any] = state["sandboxes"][state["servers"][server]["sandbox"]]
        return found

    def live(self, server: str) -> dict[str, Any]:
        """The sandbox of a server as the daemon lists it."""
        found: dict[str, Any] = self.daemon.get(self.record(server)["id"])
        return found

    def close(self) -> None:
        """Destroy what is left, from the state alone: a stack file may be broken. The daemon goes on."""
        stacks = [path.stem for path in (self.root / "state").glob("*.json")]
        for path in (self.root / "stacks").iterdir():
            path.unlink()
        if stacks:
            self.run("destroy", "-y", *stacks)


def post(url: str, token: str | None, message: Mapping[str, Any], session: str = "") -> httpx.Response:
    """One MCP message, as a client sends it."""
    headers = {"Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Cookie"] = f"__sbx_auth={token}"
    if session:
        headers["Mcp-Session-Id"] = session
    return httpx.post(url, json=message, headers=headers, timeout=30)


def call(server: Mapping[str, Any], tool: str = "about", arguments: Mapping[str, Any] | None = None) -> Any:
    """Open a session at a server's URL with its token and call a tool; the text that it answers."""
    url, token = server["url"], server["token"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    opened = post(url, token, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    assert opened.status_code == 200, f"{url}: {opened.status_code} {opened.text}"
    session = opened.headers.get("Mcp-Session-Id", "")
    post(url, token, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    params = {"name": tool, "arguments": dict(arguments or {})}
    answer = post(url, token, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, session)
    assert answer.status_code == 200, answer.text
    return _result(answer)["content"][0]["text"]


def about(server: Mapping[str, Any]) -> dict[str, Any]:
    """What ``tells.py`` was started with."""
    found: dict[str, Any] = json.loads(call(server))
    return found


def _result(answer: httpx.Response) -> Any:
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        for line in answer.text.splitlines():
            if line.startswith("data:") and '"id"' in line:
                return json.loads(line[5:])["result"]
    return answer.json()["result"]
