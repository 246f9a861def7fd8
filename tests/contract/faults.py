"""Faults on order: what a network and a service can do to a call, before or after it took effect.

An order is ``{"method", "path" (a regular expression), "times", "do", "when", …}``:

- ``do: status`` with ``status``, ``code``, ``message``, ``details``, ``headers``, ``flat`` (the other error shape)
- ``do: reset``: the connection is cut without an answer
- ``do: cut``: the answer's head is sent and half of its body
- ``do: garbage``: a success whose body is no JSON
- ``do: answer`` with ``body``: this success instead
- ``do: hang``: nothing for ``seconds``

``when: before`` (the default): the call has no effect; ``after``: it has.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Faults:
    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []

    def take(self, request: web.Request) -> dict[str, Any] | None:
        """The first order that fits this call; it is used up."""
        for order in self.orders:
            fits = order.get("method", request.method) == request.method
            if fits and order.get("times", 1) > 0 and re.search(order.get("path", ""), request.path):
                order["times"] = order.get("times", 1) - 1
                return order
        return None


async def obey(order: dict[str, Any], request: web.Request, handler: Handler) -> web.StreamResponse:
    """Do what was ordered."""
    answer = (
        await handler(request) if order.get("when") == "after" else web.json_response({"ok": True, "pad": "x" * 200})
    )
    match order["do"]:
        case "status":
            return refused(
                order["status"],
                order.get("code", "internal_error"),
                order.get("message", "Ordered."),
                order.get("details"),
                flat=order.get("flat", False),
                headers=order.get("headers"),
            )
        case "hang":
            await asyncio.sleep(order.get("seconds", 60))
            return answer
        case "garbage":
            return web.Response(body=b'{"sandbox": [', content_type="application/json")
        case "answer":
            return web.json_response(order["body"])
        case "cut":
            half = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100000"})
            await half.prepare(request)
            await half.write(b'{"ok": true, "sandb')
            _cut(request)
            return half
        case _:
            _cut(request)
            return answer


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def refused(
    status: int,
    code: str,
    message: str,
    details: dict[str, Any] | None = None,
    *,
    flat: bool = False,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """The error envelope, or the flat shape of some endpoints."""
    if flat:
        return web.json_response({"error": code, "message": message}, status=status, headers=headers)
    error = {"code": code, "message": message, "status": status}
    if details is not None:
        error["details"] = details
    body = {
        "ok": False,
        "type": "sandbox.error",
        "status": status,
        "code": code,
        "message": message,
        "requestId": "req_contract",
        "error": error,
    }
    return web.json_response(body, status=status, headers=headers)
