"""A short conversation with an MCP server over Streamable HTTP, in either era of the protocol.

``server/discover`` of 2026-07-28 is tried first, on any error but a refusal the handshake of the older versions
(``initialize``, session header) follows: servers of both eras are in use (modelcontextprotocol.io, specification
2026-07-28 and 2025-11-25, "Streamable HTTP").
"""

from __future__ import annotations

import contextlib
import json
import ssl
from functools import cache
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from mcpiac.model.secret import Secret

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = "io.modelcontextprotocol/"
CLIENT = {"name": "mcpiac", "version": "1"}
COOKIE = "__sbx_auth"
ANSWER_MAX = 32 * 1024 * 1024
"""Bytes of one answer that are read; a server that sends more is not believed."""
PAGES_MAX = 200
DISCOVER_SECONDS = 5.0
"""After so long without an answer to ``server/discover``, the older handshake is tried."""


class Refused(Exception):
    """HTTP 401 or 403: the credential, or its lack. ``status`` says which."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class Unavailable(Exception):
    """Nothing answers yet: no connection, 502, 503, 504, or silence."""


class NotMcp(Exception):
    """Something answered, and not in MCP. ``body`` is the beginning of what it said."""

    def __init__(self, why: str, body: str = "") -> None:
        super().__init__(why)
        self.body = body


class RpcError(Exception):
    """A JSON-RPC error: the server speaks, and says no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that httpx trusts, read once: 17 ms each time, and a fleet is asked twice a server."""
    return httpx.create_ssl_context()


class Conversation:
    """One client's talk with one URL. ``token`` None sends no credential. Timeouts in seconds."""

    def __init__(self, url: str, token: Secret | None, *, timeout: float = 30.0) -> None:
        headers = {"Accept": "application/json, text/event-stream", "User-Agent": "mcpiac"}
        if token is not None:
            headers["Cookie"] = f"{COOKIE}={token.reveal()}"
        loopback = urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
        self._url = url
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, trust_env=not loopback, verify=_trusted())
        self._next = 0
        self._modern = False
        self._session: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None
    ) -> None:
        if "Mcp-Session-Id" in self._session:
            with contextlib.suppress(httpx.HTTPError):
                await self._client.delete(self._url, headers=self._session, timeout=2.0)
        await self._client.__aexit__(kind, fault, at)

    async def open(self) -> str:
        """Agree on a version; returns it."""
        try:
            found = await self._request("server/discover", {}, modern=True, timeout=DISCOVER_SECONDS)
            if MODERN in (found.get("supportedVersions") or ()):
                self._modern = True
                return MODERN
        except (RpcError, NotMcp):
            pass
        except Unavailable as fault:
            if not isinstance(fault.__cause__, httpx.ReadTimeout):
                raise
        asked = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        answer = await self._request("initialize", asked)
        version = str(answer.get("protocolVersion") or LEGACY)
        self._session["MCP-Protocol-Version"] = version
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, self._session)
        return version

    async def status(self) -> int:
        """The HTTP status of one request, whatever was answered. Raises ``Unavailable`` where nothing was."""
        message = {"jsonrpc": "2.0", "id": 0, "method": "ping", "params": {}}
        try:
            async with self._client.stream("POST", self._url, json=message) as answer:
                return answer.status_code
        except httpx.HTTPError as fault:
            raise Unavailable(str(fault) or type(fault).__name__) from fault

    async def tools(self) -> list[dict[str, Any]]:
        """All pages of ``tools/list``; an empty list where the server has no tools at all."""
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            try:
                page = await self._request("tools/list", {"cursor": cursor} if cursor else {})
            except RpcError as fault:
                if fault.code == -32601 and not tools:
                    return []
                raise
            listed = page.get("tools")
            if not isinstance(listed, list):
                raise NotMcp("its answer to tools/list has no list of tools", json.dumps(page)[:200])
            tools += [tool for tool in listed if isinstance(tool, dict)]
            cursor = page.get("nextCursor")
            if not cursor:
                return tools
        raise NotMcp(f"its list of tools has more than {PAGES_MAX} pages")

    async def _request(
        self, method: str, params: dict[str, Any], *, modern: bool | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        self._next += 1
        modern = self._modern if modern is None else modern
        headers = dict(self._session)
        if modern:
            meta = {"protocolVersion": MODERN, "clientInfo": CLIENT, "clientCapabilities": {}}
            params = {**params, "_meta": {META + key: value for key, value in meta.items()}}
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        answer = await self._post(message, headers, timeout)
        if answer is None:
            raise NotMcp(f"it ended its answer to {method} without a result")
        if "error" in answer:
            fault = answer["error"] if isinstance(answer["error"], dict) else {}
            raise RpcError(int(fault.get("code") or 0), str(fault.get("message") or "no message")[:500])
        result = answer.get("result")
        if not isinstance(result, dict):
            raise NotMcp(f"its answer to {method} holds no result", json.dumps(answer)[:200])
        return result

    async def _post(
        self, message: dict[str, Any], headers: dict[str, str], timeout: float | None = None
    ) -> dict[str, Any] | None:
        """The JSON-RPC answer to a message, None where there is none to come."""
        rest = {} if timeout is None else {"timeout": timeout}
        try:
            async with self._client.stream("POST", self._url, json=message, headers=headers, **rest) as answer:  # type: ignore[arg-type]
                # Only here: some servers name a session with any answer, a refusal too, and then deny knowing it.
                if message["method"] == "initialize" and "mcp-session-id" in answer.headers:
                    self._session["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
                return await self._answer(answer, message.get("id"))
        except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
            raise Unavailable(f"nothing listens there ({fault or 'no connection'})") from fault
        except httpx.TimeoutException as fault:
            raise Unavailable(f"it did not answer {message['method']} in time") from fault
        except httpx.TransportError as fault:
            raise Unavailable(f"the connection broke while it answered {message['method']}") from fault

    async def _answer(self, answer: httpx.Response, id: object) -> dict[str, Any] | None:
        if answer.status_code in (401, 403):
            raise Refused(answer.status_code)
        if answer.status_code in (502, 503, 504):
            said = _beginning(await _body(answer))
            raise Unavailable(f"HTTP {answer.status_code}: {said}" if said else f"HTTP {answer.status_code}")
        if id is None:
            return None
        kind = answer.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind == "text/event-stream":
            return await _from_events(answer, id)
        body = await _body(answer)
        try:
            value = json.loads(body)
        except ValueError:
            value = None
        if isinstance(value, dict) and value.get("jsonrpc") == "2.0":
            return value
        raise NotMcp(f"it answered HTTP {answer.status_code} with {kind or 'no content type'}", _beginning(body))


async def _body(answer: httpx.Response) -> bytes:
    read = bytearray()
    async for part in answer.aiter_bytes():
        read += part
        if len(read) > ANSWER_MAX:
            raise NotMcp(f"its answer is longer than {ANSWER_MAX // 1024 // 1024} MiB")
    return bytes(read)


async def _from_events(answer: httpx.Response, id: object) -> dict[str, Any] | None:
    """The first message of an event stream that answers ``id``; others (progress, logs) are passed over."""
    data: list[str] = []
    held = bytearray()
    async for part in answer.aiter_bytes():
        held += part
        if len(held) > ANSWER_MAX:
            raise NotMcp(f"an event is longer than {ANSWER_MAX // 1024 // 1024} MiB")
        *lines, rest = held.replace(b"\r\n", b"\n").split(b"\n")
        held = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].lstrip(b" ").decode("utf-8", "replace"))
            elif not line and data:
                told, data = "\n".join(data), []
                if not told:  # only an id, to come back with (2025-11-25, "Streamable HTTP")
                    continue
                try:
                    value = json.loads(told)
                except ValueError as fault:
                    raise NotMcp("an event of its stream is no JSON", told[:200]) from fault
                if isinstance(value, dict) and value.get("id") == id and ("result" in value or "error" in value):
                    return value
    return None


def _beginning(body: bytes) -> str:
    return body[:200].decode("utf-8", "replace").strip()
