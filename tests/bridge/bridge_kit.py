"""Starts bridges and speaks to them by hand: plain sockets and http.client, no SDK."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SERVERS = Path(__file__).parent.parent / "servers"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


def server(name: str, *args: str) -> list[str]:
    return [sys.executable, "-S", str(SERVERS / f"{name}.py"), *args]


def eventually(what: Callable[[], Any], seconds: float = 10.0) -> Any:
    """The first true value of `what`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


class Bridge:
    """A bridge in a process of its own. Leaving the block ends it and checks that nothing is left."""

    def __init__(
        self,
        command: list[str],
        *options: str,
        program: list[str] | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        program = program or [sys.executable, "-m", "mcpiac.bridge"]
        self.mark = os.urandom(6).hex()
        environment = {**os.environ, **(env or {}), "BRIDGE_TEST_MARK": self.mark}
        self.process = subprocess.Popen(
            [*program, "--port", "0", *options, "--", *command],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.lines: list[str] = []
        self._unread = False
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listening.wait(10)
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)(/\S*)", self.log())
        if found is None:
            self.process.kill()
            raise AssertionError("the bridge does not listen: " + self.log())
        self.port = int(found.group(1))
        self.url = f"http://127.0.0.1:{self.port}{found.group(2)}"

    def _read(self) -> None:
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            if self._unread:
                return
            self.lines.append(raw.decode("utf-8", "replace").rstrip())
            if "listening on" in self.lines[-1]:
                self._listening.set()
        self._listening.set()

    def stop_reading(self) -> None:
        """Leaves the log unread from its next line on."""
        self._unread = True

    def log(self) -> str:
        return "\n".join(self.lines)

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, kind: Any, exc: Any, trace: Any) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(20)
        finally:
            if self.process.poll() is None:
                self.process.kill()
        self._reader.join(5)
        if kind is None:
            assert status == 0, (status, self.log())
            assert self.left() == []

    def left(self) -> list[int]:
        """Processes that this bridge or its servers started and that still run."""
        return marked(self.mark)

    def worker(self) -> int:
        """The process that does the work."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def health(self, query: str = "") -> dict[str, Any]:
        return json.loads(request(self.port, "GET", "/healthz" + query)[2])


def marked(mark: str) -> list[int]:
    wanted = f"BRIDGE_TEST_MARK={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def end_marked(mark: str) -> None:
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def request(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    timeout: float = 30,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def events(stream: Any) -> Iterator[tuple[str | None, str]]:
    """(event id, data) of each event of an open response, until it ends."""
    event_id, data, seen = None, [], False
    while True:
        raw = stream.readline()
        if not raw:
            return
        line = raw.decode("utf-8").rstrip("\r\n")
        if not line:
            if seen:
                yield event_id, "\n".join(data)
            event_id, data, seen = None, [], False
        elif line.startswith("id: "):
            event_id, seen = line[4:], True
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
            seen = True


class Client:
    """A client of the handshake era that keeps raw texts."""

    def __init__(self, port: int, version: str = "2025-11-25", path: str = "/mcp", timeout: float = 30) -> None:
        self.port, self.path, self.timeout = port, path, timeout
        self.version = version
        self.session: str | None = None
        self.replies = True
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def headers(self, more: dict[str, str] | None = None) -> dict[str, str]:
        headers = dict(BOTH)
        if self.session:
            headers["mcp-session-id"] = self.session
            headers["mcp-protocol-version"] = self.version
        return {**headers, **(more or {})}

    def open(self, method: str, body: bytes | None = None, more: dict[str, str] | None = None) -> Any:
        """Sends a request on a connection of its own; the response, its body unread."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        connection.request(method, self.path, body, self.headers(more))
        response = connection.getresponse()
        response.connection = connection  # type: ignore[attr-defined]
        return response

    def send(self, body: str | bytes | dict[str, Any], more: dict[str, str] | None = None) -> Any:
        """Sends on the client's own connection: (status, headers, messages as raw texts)."""
        if isinstance(body, dict):
            body = json.dumps(body)
        data = body.encode() if isinstance(body, str) else body
        try:
            self.connection.request("POST", self.path, data, self.headers(more))
            answer = self.connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self.connection.close()
            self.connection.request("POST", self.path, data, self.headers(more))
            answer = self.connection.getresponse()
        headers = {k.lower(): v for k, v in answer.getheaders()}
        if headers.get("content-type", "").startswith("text/event-stream"):
            texts = []
            for _, text in events(answer):
                if text:
                    texts.append(text)
                    self._reply(text)
            return answer.status, headers, texts
        text = answer.read().decode()
        return answer.status, headers, [text] if text else []

    def _reply(self, text: str) -> None:
        """Answers what a server asks in the middle of a call: pong, or that the method is unknown."""
        message = json.loads(text)
        if self.replies and "method" in message and "id" in message:
            reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
            if message["method"] == "ping":
                reply["result"] = {}
            else:
                reply["error"] = {"code": -32601, "message": "unknown"}
            request(self.port, "POST", self.path, json.dumps(reply).encode(), self.headers())

    def initialize(self, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
        message = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": self.version,
                "capabilities": capabilities or {},
                "clientInfo": {"name": "raw", "version": "1"},
            },
        }
        status, headers, texts = self.send(message)
        answer = json.loads(texts[-1])
        if status == 200 and "result" in answer:
            self.session = headers["mcp-session-id"]
            self.version = answer["result"]["protocolVersion"]
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def ask(self, method: str, params: dict[str, Any] | None = None, rid: Any = 1) -> dict[str, Any]:
        """The last message of the answer."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": rid, "method": method}
        if params is not None:
            message["params"] = params
        return json.loads(self.send(message)[2][-1])

    def echo(self, text: str, rid: Any = 1) -> dict[str, Any]:
        return self.ask("tools/call", {"name": "echo", "arguments": {"text": text}}, rid)

    def delete(self) -> int:
        return request(self.port, "DELETE", self.path, None, self.headers())[0]

    def close(self) -> None:
        self.connection.close()


def modern(
    port: int,
    method: str,
    params: dict[str, Any] | None = None,
    rid: Any = 1,
    more: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
) -> tuple[int, dict[str, Any]]:
    """One request of 2026-07-28: HTTP status and the last message."""
    body, headers = modern_request(method, params, rid, more, meta)
    status, got, data = request(port, "POST", "/mcp", body, headers)
    if got.get("content-type", "").startswith("text/event-stream"):
        texts = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
        return status, json.loads(texts[-1])
    return status, json.loads(data)


def modern_request(
    method: str,
    params: dict[str, Any] | None = None,
    rid: Any = 1,
    more: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
) -> tuple[bytes, dict[str, str]]:
    envelope = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}, **(meta or {})}
    params = {**(params or {}), "_meta": envelope}
    message = {"jsonrpc": "2.0", "id": rid, "method": method, "params": params}
    headers = {**BOTH, "mcp-protocol-version": MODERN, "mcp-method": method}
    name = params.get("name") or params.get("uri")
    if name:
        headers["mcp-name"] = name
    return json.dumps(message).encode(), {**headers, **(more or {})}
