"""A stage for the core alone: events go in by hand, commands are looked at, time is a number."""

from __future__ import annotations

import itertools
import json
from typing import Any

from mcpiac.bridge import commands as do
from mcpiac.bridge.core import Ended
from mcpiac.bridge.gate import Rules, head_of
from mcpiac.bridge.hub import Hub
from mcpiac.bridge.limits import Limits

BOTH = {"host": "localhost", "accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


def init_text(rid: Any = 0, version: str = "2025-11-25") -> str:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return json.dumps({"jsonrpc": "2.0", "id": rid, "method": "initialize", "params": params})


def init_answer(rid: str = "0", version: str = "2025-11-25") -> str:
    result = '{"protocolVersion":"' + version + '","capabilities":{},"serverInfo":{"name":"s","version":"1"}}'
    return '{"jsonrpc":"2.0","id":' + rid + ',"result":' + result + "}"


class Stage:
    def __init__(self, **limits: Any) -> None:
        ids = itertools.count(1)
        self.hub = Hub(Limits()._replace(**limits), Rules(), lambda: f"s{next(ids)}")
        self.now = 0.0
        self.log: list[do.Command] = []
        self.exchanges = itertools.count(1)
        self.reap = True
        self.quiet = False  # True: what asks to be woken is not

    # events

    def play(self, commands: list[do.Command]) -> list[do.Command]:
        self.log += commands
        if any(isinstance(c, do.Wake) for c in commands) and not self.quiet:
            commands = commands + self.play(self.hub.wake(self.now))
        for command in list(commands):
            if isinstance(command, do.End) and self.reap:
                commands = commands + self.play(self.hub.reaped(command.child, self.now))
        return commands

    def post(self, body: str, session: str | None = None, **more: str) -> int:
        exchange = next(self.exchanges)
        headers = dict(BOTH)
        if session:
            headers["mcp-session-id"] = session
        headers.update({k.replace("_", "-"): v for k, v in more.items()})
        head = head_of("POST", "/mcp", headers.items())
        assert self.hub.rules.refuse(head) is None
        self.play(self.hub.request(exchange, head, body.encode(), self.now))
        return exchange

    def get(self, session: str, after: str | None = None) -> int:
        exchange = next(self.exchanges)
        headers = {**BOTH, "mcp-session-id": session}
        if after:
            headers["last-event-id"] = after
        self.play(self.hub.request(exchange, head_of("GET", "/mcp", headers.items()), b"", self.now))
        return exchange

    def modern(self, method: str, rid: str = "1", params: str = "", meta: str = "", **more: str) -> int:
        envelope = f'"{META}protocolVersion":"{MODERN}","{META}clientCapabilities":{{}}{meta}'
        body = '{"jsonrpc":"2.0","id":' + rid + ',"method":"' + method + '","params":{' + params
        body += '"_meta":{' + envelope + "}}}"
        return self.post(body, **{"mcp_protocol_version": MODERN, "mcp_method": method, **more})

    def output(self, child: int, *texts: str) -> list[do.Command]:
        data = "".join(t + "\n" for t in texts).encode()
        return self.play(self.hub.output(child, data, self.now))

    def ended(self, child: int, status: str = "exit 1", *stderr: str) -> list[do.Command]:
        return self.play(self.hub.ended(child, Ended(status, stderr), self.now))

    def pass_time(self, seconds: float) -> list[do.Command]:
        """Second by second."""
        out: list[do.Command] = []
        for _ in range(int(seconds)):
            self.now += 1.0
            out += self.play(self.hub.tick(self.now))
        return out

    def session(self, version: str = "2025-11-25") -> tuple[str, int]:
        """An open session: its id and its child."""
        self.post(init_text(version=version))
        child = self.spawned()
        answer = self.output(child, init_answer(version=version))[-1]
        assert isinstance(answer, do.Respond)
        return dict(answer.headers)["mcp-session-id"], child

    # looking

    def spawned(self) -> int:
        return [c for c in self.log if isinstance(c, do.Spawn)][-1].child

    def written(self, child: int) -> list[str]:
        return [c.data.decode().rstrip("\n") for c in self.log if isinstance(c, do.Write) and c.child == child]

    def respond(self, exchange: int) -> do.Respond:
        return next(c for c in self.log if isinstance(c, do.Respond) and c.exchange == exchange)

    def texts(self, exchange: int) -> list[str]:
        """JSON texts that the client of an exchange has got."""
        found: list[str] = []
        for command in self.log:
            if isinstance(command, do.Respond) and command.exchange == exchange:
                found.append(command.body.decode())
            elif isinstance(command, do.Data) and command.exchange == exchange:
                lines = command.data.decode().split("\n")
                found += [line[6:] for line in lines if line.startswith("data: ")]
        return found

    def event_ids(self, exchange: int) -> list[str]:
        lines = [c.data.decode() for c in self.log if isinstance(c, do.Data) and c.exchange == exchange]
        return [line[4:] for data in lines for line in data.split("\n") if line.startswith("id: ")]

    def has(self, kind: type, **fields: Any) -> bool:
        return any(isinstance(c, kind) and all(getattr(c, k) == v for k, v in fields.items()) for c in self.log)
