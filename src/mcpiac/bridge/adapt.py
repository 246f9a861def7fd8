"""Between the eras: what is added to a message so that a server of the other era understands it.

Only insertions: what the client or the server wrote stays as it was written.
"""

from __future__ import annotations

import json

from .gate import LEGACY_VERSIONS, META
from .jsonscan import Message, Span

MODERN = "2026-07-28"
BRIDGE_INFO = '{"name":"mcpiac-bridge","version":"1"}'
# Results of 2026-07-28 that must say how long they may be kept.
CACHEABLE = frozenset(("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"))
NOTIFICATIONS_KEPT = frozenset(("notifications/cancelled", "notifications/progress"))


def _request(raw_id: str, method: str, params: str) -> str:
    return '{"jsonrpc":"2.0","id":' + raw_id + ',"method":"' + method + '","params":' + params + "}"


def _envelope(version: str, info: str, capabilities: str) -> str:
    """The members of params._meta that 2026-07-28 requires."""
    return f'"{META}protocolVersion":"{version}","{META}clientInfo":{info},"{META}clientCapabilities":{capabilities}'


def discover_request(raw_id: str, version: str = MODERN) -> str:
    meta = _envelope(version, BRIDGE_INFO, "{}")
    return _request(raw_id, "server/discover", '{"_meta":{' + meta + "}}")


def initialize_request(raw_id: str) -> str:
    version = LEGACY_VERSIONS[0]
    params = '{"protocolVersion":"' + version + '","capabilities":{},"clientInfo":' + BRIDGE_INFO + "}"
    return _request(raw_id, "initialize", params)


INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'


def cancelled(raw_id: str, reason: str) -> str:
    params = '{"requestId":' + raw_id + ',"reason":' + json.dumps(reason) + "}"
    return '{"jsonrpc":"2.0","method":"notifications/cancelled","params":' + params + "}"


class Envelope:
    """What an older client said in `initialize`, as 2026-07-28 wants it in every request."""

    __slots__ = ("capabilities", "info", "level", "version")

    def __init__(self, initialize: Message, version: str = MODERN) -> None:
        params = initialize.params()
        self.version = version
        self.info = initialize.slice(params.get("clientInfo")) or BRIDGE_INFO
        self.capabilities = initialize.slice(params.get("capabilities")) or "{}"
        self.level: str | None = None  # JSON text of the log level that the client set

    def around(self, message: Message) -> str:
        """The request with the envelope in params._meta."""
        pairs = _envelope(self.version, self.info, self.capabilities)
        if self.level is not None:
            pairs += f',"{META}logLevel":{self.level}'
        text = message.text
        meta = message.params().get("_meta")
        if meta is not None and text[meta[0]] == "{":
            return _insert(text, message, meta[0], pairs)
        params = message.spans.get("params")
        whole = '{"_meta":{' + pairs + "}}"
        if params is None:
            return message.whole[:-1] + ',"params":' + whole + "}"
        if text[params[0]] == "{":
            return _insert(text, message, params[0], whole[1:-1])
        return message.replaced([(params, whole)])


def _insert(text: str, message: Message, brace: int, pairs: str) -> str:
    """Puts members behind the opening brace at `brace`."""
    empty = text[brace + 1 : message.end].lstrip(" \t\r\n").startswith("}")
    span: Span = (brace + 1, brace + 1)
    return message.replaced([(span, pairs if empty else pairs + ",")])


def initialize_result(raw_id: str, discover: Message, requested: str | None) -> str:
    """The answer to `initialize`, made of a server's answer to `server/discover`."""
    result = discover.object_at(discover.spans.get("result"))
    meta = discover.object_at(result.get("_meta"))
    info = discover.slice(meta.get(META + "serverInfo")) or discover.slice(result.get("serverInfo"))
    capabilities = discover.slice(result.get("capabilities")) or "{}"
    instructions = discover.slice(result.get("instructions"))
    version = requested if requested in LEGACY_VERSIONS else LEGACY_VERSIONS[0]
    parts = [
        '"protocolVersion":"' + version + '"',
        '"capabilities":' + capabilities,
        '"serverInfo":' + (info or '{"name":"unnamed","version":"0"}'),
    ]
    if instructions is not None:
        parts.append('"instructions":' + instructions)
    return '{"jsonrpc":"2.0","id":' + raw_id + ',"result":{' + ",".join(parts) + "}}"


def modern_result(text: str, method: str) -> str:
    """A result of an older server with what 2026-07-28 requires beside it."""
    message = Message(text)
    span = message.spans.get("result")
    if span is None or text[span[0]] != "{":
        return text
    have = message.object_at(span)
    pairs = []
    if "resultType" not in have:
        pairs.append('"resultType":"complete"')
    if method in CACHEABLE and "ttlMs" not in have:
        pairs.append('"ttlMs":0,"cacheScope":"private"')
    return _insert(text, message, span[0], ",".join(pairs)) if pairs else text


def modern_versions(discover: Message) -> list[str]:
    """Versions that a server names in its answer to `server/discover` and that are no older era's."""
    result = discover.object_at(discover.spans.get("result"))
    raw = discover.slice(result.get("supportedVersions"))
    if raw is None:
        error = discover.object_at(discover.spans.get("error"))
        raw = discover.slice(discover.object_at(error.get("data")).get("supported"))
    try:
        named = json.loads(raw or "[]")
    except ValueError:
        return []
    if not isinstance(named, list):
        return []
    return [v for v in named if isinstance(v, str) and v not in LEGACY_VERSIONS]
