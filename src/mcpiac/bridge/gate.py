"""What an HTTP request must be before the bridge looks at its body, and the header rules of 2026-07-28.

Sources: the transport pages of the protocol, 2025-03-26 to 2026-07-28.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import NamedTuple

from .jsonscan import Message

LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
META = "io.modelcontextprotocol/"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
BRIDGE_ERROR = -32000  # the child ended, cannot start, or the bridge is full or stopping
TIME_LIMIT = -32001

# The status that 2026-07-28 asks for beside an error code; everything else is 200.
STATUS_OF_CODE = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    -32021: 400,  # a client capability is missing
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
NAME_OF_METHOD = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_SINGLE = frozenset(
    ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id", "host", "origin")
)


class Head(NamedTuple):
    """The first part of an HTTP request. Header names are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    repeated: tuple[str, ...]  # headers that must stand once and stand more often


class Refusal(NamedTuple):
    status: int
    code: int
    message: str
    headers: tuple[tuple[str, str], ...] = ()
    data: str | None = None  # JSON


def head_of(method: str, target: str, headers: Iterable[tuple[str, str]]) -> Head:
    path, _, query = target.partition("?")
    folded: dict[str, str] = {}
    repeated: list[str] = []
    for name, value in headers:
        if name in folded:
            if name in _SINGLE or name.startswith("mcp-param-"):
                repeated.append(name)
            folded[name] = folded[name] + ", " + value
        else:
            folded[name] = value
    return Head(method, path, query, folded, tuple(repeated))


class Rules:
    """Which hosts, origins and path are served; and the largest body in bytes."""

    def __init__(
        self,
        path: str = "/mcp",
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        max_body: int = 64 << 20,
        health_path: str = "/healthz",
    ) -> None:
        self.path = path
        self.health_path = health_path
        self.max_body = max_body
        self.hosts = frozenset(_LOOPBACK) | frozenset(_bare(host) for host in hosts)
        self.origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def refuse(self, head: Head) -> Refusal | None:
        """Why the request is not served at all; None when it may go on."""
        host = head.headers.get("host", "")
        if "host" in head.repeated or _bare(host) not in self.hosts:
            return Refusal(421, INVALID_REQUEST, "the Host header names no host that this endpoint serves")
        origin = head.headers.get("origin")
        if origin is not None and not self._origin_fits(origin):
            return Refusal(403, INVALID_REQUEST, "the Origin header names a foreign origin")
        if head.path == self.health_path:
            if head.method not in ("GET", "HEAD"):
                return Refusal(405, INVALID_REQUEST, "only GET here", (("allow", "GET, HEAD"),))
            return None
        if head.path != self.path and head.path != self.path + "/":
            return Refusal(404, INVALID_REQUEST, "nothing here; the endpoint is " + self.path)
        if head.method not in ("GET", "POST", "DELETE"):
            return Refusal(405, INVALID_REQUEST, "method not allowed", (("allow", "GET, POST, DELETE"),))
        if head.method == "POST":
            kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return Refusal(415, INVALID_REQUEST, "Content-Type must be application/json")
            if not (accepts(head, "application/json") or accepts(head, "text/event-stream")):
                return Refusal(406, INVALID_REQUEST, "Accept must name application/json and text/event-stream")
            length = head.headers.get("content-length", "0")
            if length.isdigit() and int(length[:18]) > self.max_body:
                return self.too_large()
        elif head.method == "GET" and not accepts(head, "text/event-stream"):
            return Refusal(406, INVALID_REQUEST, "Accept must name text/event-stream")
        return None

    def too_large(self) -> Refusal:
        return Refusal(413, INVALID_REQUEST, f"the body is larger than {self.max_body} bytes")

    def _origin_fits(self, origin: str) -> bool:
        origin = origin.strip().lower()
        if origin in self.origins:
            return True
        scheme, sep, rest = origin.partition("://")
        return bool(sep) and scheme in ("http", "https") and _bare(rest) in self.hosts


def _bare(host: str) -> str:
    """A host without its port, in lower case; an IPv6 address keeps its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        inner, bracket, port = host.partition("]")
        return inner + bracket if not port or (port[0] == ":" and port[1:].isdigit()) else host
    name, colon, port = host.partition(":")
    return name if not colon or port.isdigit() else host


def accepts(head: Head, kind: str) -> bool:
    """Whether the Accept header allows the media type; an absent header allows all."""
    accept = head.headers.get("accept")
    if accept is None:
        return True
    wanted = (kind, kind.partition("/")[0] + "/*", "*/*")
    return any(part.partition(";")[0].strip().lower() in wanted for part in accept.split(","))


def is_modern(head: Head, message: Message) -> bool:
    """Whether a POST without a session belongs to the era of 2026-07-28."""
    version = head.headers.get("mcp-protocol-version")
    if version is not None and version not in LEGACY_VERSIONS:
        return True
    return message.method != "initialize" and META + "protocolVersion" in message.meta()


def check_modern(head: Head, message: Message) -> Refusal | None:
    """The header and envelope rules of 2026-07-28 for one request; the first that fails."""
    for name in ("mcp-protocol-version", "mcp-method", "mcp-name"):
        if name in head.repeated:
            return Refusal(400, HEADER_MISMATCH, name + " header appears more than once")
    meta = message.meta()
    missing = [k for k in (META + "protocolVersion", META + "clientCapabilities") if k not in meta]
    if missing:
        return Refusal(400, INVALID_PARAMS, "params._meta lacks " + ", ".join(missing))
    version = message.string_at(meta[META + "protocolVersion"])
    if version is None:
        return Refusal(400, INVALID_PARAMS, "the protocol version in params._meta must be a string")
    if head.headers.get("mcp-protocol-version") != version:
        return Refusal(400, HEADER_MISMATCH, "mcp-protocol-version header does not match params._meta of the body")
    if head.headers.get("mcp-method") != message.method:
        return Refusal(400, HEADER_MISMATCH, "mcp-method header does not match the method of the body")
    if message.method == "initialize":
        return Refusal(404, METHOD_NOT_FOUND, "there is no initialize in this protocol era")
    name_key = NAME_OF_METHOD.get(message.method or "")
    if name_key is not None:
        value = message.string_at(message.params().get(name_key))
        if value is not None and plain_header(head.headers.get("mcp-name")) != value:
            return Refusal(400, HEADER_MISMATCH, f"mcp-name header does not match params.{name_key}")
    return None


def plain_header(value: str | None) -> str | None:
    """A header value, decoded when it is written as =?base64?...?=; None when that is malformed."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    payload = value[9:-2]
    try:
        decoded = base64.b64decode(payload, validate=True)
        if base64.b64encode(decoded).decode("ascii") != payload:
            return None
        return decoded.decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def error_text(raw_id: str | None, code: int, message: str, data: str | None = None) -> str:
    """A JSON-RPC error. `raw_id` and `data` are JSON texts and go in as they are."""
    more = "" if data is None else ',"data":' + data
    error = '{"code":' + str(code) + ',"message":' + json.dumps(message) + more + "}"
    return '{"jsonrpc":"2.0","id":' + (raw_id or "null") + ',"error":' + error + "}"


def unsupported_version(requested: str | None) -> Refusal:
    """Tells a client of 2026-07-28 that the server behind speaks the older handshake."""
    data = json.dumps({"supported": list(LEGACY_VERSIONS), "requested": requested})
    message = "this server speaks the initialize handshake; its protocol versions are in `supported`"
    return Refusal(400, UNSUPPORTED_VERSION, message, (), data)
