"""The application: routes, who may ask, request ids, and every failure as the error envelope."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiohttp import web
from pydantic import ValidationError

from mcpiac import wire
from mcpiac.local.errors import Refused
from mcpiac.local.fleet import Fleet
from mcpiac.local.link import AgentError, AgentGone
from mcpiac.local.packages.store import Store

log = logging.getLogger(__name__)

FLEET = web.AppKey("fleet", Fleet)
STORE = web.AppKey("store", Store)
ENDING = web.AppKey("ending", asyncio.Event)
_KEY = web.AppKey("key", bytes)
_ID = "mcpiac.request-id"

BODY_MAX = 64 * 1024 * 1024
_NOT_HERE = "the embedded backend does not have this operation"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
M = TypeVar("M", bound=wire.Message)


def make(fleet: Fleet, store: Store, *, key: str | None, end: asyncio.Event) -> web.Application:
    """The application. ``key``: what a request over TCP must carry; on the unix socket the folder's mode decides."""
    from mcpiac.local.api import hosting, inside, packages, sandboxes

    app = web.Application(middlewares=[_around], client_max_size=BODY_MAX)
    app[FLEET] = fleet
    app[STORE] = store
    app[ENDING] = end
    app[_KEY] = (key or "").encode()
    for room in (sandboxes, inside, hosting, packages):
        app.add_routes([web.route(method, f"{wire.API_PREFIX}{path}", call) for method, path, call in room.ROUTES])
    return app


@web.middleware
async def _around(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[_ID] = f"req_{secrets.token_hex(8)}"
    began = time.monotonic()
    try:
        _authorise(request)
        answer = await handler(request)
    except Refused as fault:
        answer = refusal(request, fault)
    except web.HTTPNotFound:
        answer = refusal(request, Refused(501, "not_supported", f"{_NOT_HERE}: {request.method} {request.path}"))
    except web.HTTPMethodNotAllowed:
        answer = refusal(request, Refused(501, "not_supported", f"{_NOT_HERE}: {request.method} {request.path}"))
    except web.HTTPRequestEntityTooLarge:
        answer = refusal(request, Refused(413, "body_too_large", f"a body may have {BODY_MAX} bytes"))
    except AgentError as fault:
        answer = refusal(request, from_agent(fault))
    except AgentGone as fault:
        answer = refusal(request, Refused(502, "sandbox_direct_failed", str(fault), details={"retryable": False}))
    except (ConnectionResetError, web.HTTPException):
        raise
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        answer = refusal(request, Refused(500, "internal_error", "the daemon failed; its log says more"))
    if not answer.prepared:
        answer.headers[wire.HEADER_REQUEST_ID] = request[_ID]
    took = (time.monotonic() - began) * 1000
    log.info("%s %s %s %d %.1f ms", request[_ID], request.method, request.path[:200], answer.status, took)
    return answer


def _authorise(request: web.Request) -> None:
    """Over the unix socket: the same user (or root). Over TCP: the key, compared in constant time."""
    transport = request.transport
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is not None and sock.family == socket.AF_UNIX:
        _pid, uid, _gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.geteuid()):
            raise Refused(401, "unauthorized", "this daemon serves another user")
        return
    key = request.app[_KEY]
    sent = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    if not key or not hmac.compare_digest(sent, b"Bearer " + key):
        raise Refused(401, "unauthorized", "the API key is missing or wrong")


def refusal(request: web.Request, fault: Refused) -> web.Response:
    """The error envelope."""
    envelope = wire.ErrorEnvelope(
        status=fault.status,
        code=fault.code,
        message=fault.message,
        request_id=request[_ID],
        error=wire.ErrorDetail(code=fault.code, message=fault.message, status=fault.status, details=fault.details),
    )
    return web.json_response(envelope.model_dump(mode="json", by_alias=True), status=fault.status)


def from_agent(fault: AgentError) -> Refused:
    """What the agent refused, as the API says it. Its message is the guest's word."""
    status = {"not_found": 404, "file_not_found": 404, "file_too_large": 413}.get(fault.code, 400)
    code = {"not_found": "process_not_found"}.get(fault.code, fault.code)
    return Refused(status, code, fault.message)


def told(answer: wire.Answer, status: int = 200, **more: Any) -> web.Response:
    """A success. ``more``: fields of the API that ``wire`` does not name."""
    return web.json_response({**answer.body(), **more}, status=status)


async def body(request: web.Request, kind: type[M]) -> M:
    """The request's JSON as this message; an empty body is an empty object. Refuses what does not fit, by its place,
    never by its value."""
    raw = await request.read()
    try:
        data = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_json", "the body is no JSON") from None
    if not isinstance(data, dict):
        raise Refused(400, "invalid_json", "the body is no JSON object")
    try:
        return kind.model_validate(data)
    except ValidationError as fault:
        first = fault.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(400, "invalid_request", f"{where}: {first['msg']}", details={"field": where}) from None


def number(query: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """A whole number, at least 0, of the query."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Refused(400, "invalid_request", f"{name} must be a whole number", details={"field": name})
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true", "yes")


class Lines:
    """An NDJSON answer, a line at a time."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        headers = {"Content-Type": "application/x-ndjson", wire.HEADER_REQUEST_ID: request[_ID]}
        self.response = web.StreamResponse(headers=headers)

    async def begin(self) -> None:
        await self.response.prepare(self._request)

    async def send(self, line: Mapping[str, Any]) -> None:
        await self.response.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
