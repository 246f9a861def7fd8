"""The MCP probe against answering machines: every way in which a URL can answer, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mcpiac.model.outcome import ProviderError
from mcpiac.model.secret import Secret
from mcpiac.probe.check import McpProbe

Answer = Callable[[dict[str, Any], Any], tuple[int, str, bytes]]
"""Message and headers → status, content type, body."""

JSON = "application/json"
TOOLS = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(14)]


@contextmanager
def serving(answer: Answer, token: str | None = "right") -> Iterator[str]:
    """A URL that asks for its token (unless None), then answers as told."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if token is not None and self.headers.get("Cookie") != f"__sbx_auth={token}":
                self.reply(401, JSON, b"{}")
            else:
                self.reply(*answer(json.loads(body), self.headers))

        def do_DELETE(self) -> None:
            self.reply(200, JSON, b"")

        def reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status != 401:
                self.send_header("Mcp-Session-Id", "s1" if status == 200 else "none-of-mine")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def result(message: dict[str, Any], value: dict[str, Any]) -> tuple[int, str, bytes]:
    return 200, JSON, json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": value}).encode()


def refusal(message: dict[str, Any], code: int, status: int = 200) -> tuple[int, str, bytes]:
    fault = {"code": code, "message": "no"}
    return status, JSON, json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": fault}).encode()


def legacy(message: dict[str, Any], headers: Any) -> tuple[int, str, bytes]:
    """Of 2025-11-25: knows no server/discover, wants its session header, and none before there is one."""
    match message["method"]:
        case "initialize" if headers["Mcp-Session-Id"] is None:
            return result(message, {"protocolVersion": "2025-11-25", "capabilities": {}})
        case "notifications/initialized":
            return 202, JSON, b""
        case "tools/list" if headers["Mcp-Session-Id"] == "s1" and headers["MCP-Protocol-Version"] == "2025-11-25":
            at = int((message["params"] or {}).get("cursor") or 0)
            more = {"nextCursor": str(at + 7)} if at + 7 < len(TOOLS) else {}
            return result(message, {"tools": TOOLS[at : at + 7], **more})
    return refusal(message, -32601, 400)


def modern(message: dict[str, Any], headers: Any) -> tuple[int, str, bytes]:
    """Of 2026-07-28 only."""
    meta = (message.get("params") or {}).get("_meta") or {}
    if (
        headers["Mcp-Method"] != message["method"]
        or meta.get("io.modelcontextprotocol/protocolVersion") != "2026-07-28"
    ):
        return refusal(message, -32020, 400)
    if message["method"] == "server/discover":
        return result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {}})
    return result(message, {"tools": TOOLS[:1]})


def as_events(answer: Answer) -> Answer:
    """The same answers as an event stream with CRLF, after an empty event, a comment and a notification."""

    def told(message: dict[str, Any], headers: Any) -> tuple[int, str, bytes]:
        status, kind, body = answer(message, headers)
        if status != 200:
            return status, kind, body
        note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
        events = b"".join(b"event: message\r\ndata: " + d + b"\r\n\r\n" for d in (note, body))
        return 200, "text/event-stream", b"id: 1\r\ndata: \r\n\r\n: a comment\r\n\r\n" + events

    return told


def check(url: str, token: str | None = "right", *, public: bool = False, timeout: float = 5.0) -> str:
    async def ask() -> str:
        secret = Secret(token) if token is not None else None
        return await McpProbe().check(url, secret, public=public, timeout=timeout, progress=lambda _: None)

    return asyncio.run(ask())


def fault_of(
    answer: Answer, *, token: str | None = "right", given: str = "right", timeout: float = 5.0
) -> ProviderError:
    with serving(answer, token) as url, pytest.raises(ProviderError) as caught:
        check(url, given, timeout=timeout)
    assert caught.value.kind == "rejected"
    return caught.value


@pytest.mark.parametrize(("answer", "note"), [(legacy, "14 tools"), (modern, "1 tool")])
@pytest.mark.parametrize("shape", [lambda a: a, as_events], ids=["json", "events"])
def test_both_eras_and_both_shapes(answer: Answer, note: str, shape: Callable[[Answer], Answer]) -> None:
    with serving(shape(answer)) as url:
        assert check(url) == note


def test_a_public_url_is_asked_without_a_token() -> None:
    with serving(modern, token=None) as url:
        assert check(url, None, public=True) == "1 tool"


def test_a_server_without_tools_is_well() -> None:
    def answer(message: dict[str, Any], headers: Any) -> tuple[int, str, bytes]:
        return refusal(message, -32601) if message["method"] == "tools/list" else legacy(message, headers)

    with serving(answer) as url:
        assert check(url) == "no tools"


def test_a_private_url_that_lets_strangers_in_fails() -> None:
    assert fault_of(modern, token=None).code == "no-401"


def test_its_own_token_refused() -> None:
    assert fault_of(modern, given="wrong").code == "own-token-refused"


def test_something_that_is_no_mcp_is_quoted() -> None:
    fault = fault_of(lambda *_: (200, "text/html", b"<h1>It works!</h1>"))
    assert (fault.code, fault.output) == ("not-mcp", "<h1>It works!</h1>")


def test_a_404_is_no_mcp_and_not_waited_for() -> None:
    assert "404" in str(fault_of(lambda *_: (404, "text/plain", b"not found"), timeout=600))


def test_a_refused_handshake_is_told_in_the_servers_words() -> None:
    fault = fault_of(lambda message, _: refusal(message, -32022))
    assert fault.code == "mcp-error"
    assert "no (-32022)" in str(fault)


def test_what_starts_late_is_waited_for() -> None:
    asked: list[str] = []

    def answer(message: dict[str, Any], headers: Any) -> tuple[int, str, bytes]:
        asked.append(message["method"])
        return (503, "text/plain", b"starting") if len(asked) < 4 else modern(message, headers)

    with serving(answer) as url:
        assert check(url) == "1 tool"


def test_what_never_answers_is_told_with_its_last_words() -> None:
    fault = fault_of(lambda *_: (503, "text/plain", b"the server exited with 1"), timeout=0.3)
    assert fault.code == "server-silent"
    assert "the server exited with 1" in str(fault)


def test_what_takes_a_request_and_is_silent_ends_with_the_time_given() -> None:
    released = threading.Event()

    def answer(message: dict[str, Any], headers: Any) -> tuple[int, str, bytes]:
        released.wait(20)
        return modern(message, headers)

    began = time.monotonic()
    with serving(answer) as url:
        with pytest.raises(ProviderError, match=r"no answer .* within 1 s"):
            check(url, timeout=1)
        took = time.monotonic() - began
        released.set()
    assert took < 4


def test_nothing_listens() -> None:
    with serving(modern) as url:
        pass
    with pytest.raises(ProviderError, match="nothing listens"):
        check(url, timeout=0.2)
