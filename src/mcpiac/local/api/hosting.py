"""Hosted ports."""

from __future__ import annotations

from aiohttp import web

from mcpiac import wire
from mcpiac.local.api.app import FLEET, body, number, told
from mcpiac.local.errors import Refused
from mcpiac.local.fleet import hosted_ports
from mcpiac.local.hosting import Hosting

TITLE_MAX = 200


async def host(request: web.Request) -> web.Response:
    """``POST …/host``: the same sandbox and port give the same URL and token."""
    asked = await body(request, wire.HostRequest)
    fleet = request.app[FLEET]
    box = fleet.use(request.match_info["id"])
    if not 1 <= asked.port <= 65535:
        raise Refused(400, "invalid_port", "port must be 1 to 65535")
    if asked.title is not None and len(asked.title) > TITLE_MAX:
        raise Refused(400, "invalid_request", f"a title has at most {TITLE_MAX} characters")
    made = await fleet.host(box, asked.port, public=asked.public, localhost=asked.localhost, title=asked.title or "")
    return told(
        wire.HostAnswer(
            port=made.port,
            url=made.url_with_token,
            is_protected=not made.public,
            access="public" if made.public else "private",
            localhost=made.localhost,
            title=made.title or None,
        )
    )


async def hosted(request: web.Request) -> web.Response:
    box = request.app[FLEET].use(request.match_info["id"])
    return told(wire.HostedPage(ports=tuple(_item(each) for each in hosted_ports(box))))


async def hide(request: web.Request) -> web.Response:
    fleet = request.app[FLEET]
    box = fleet.use(request.match_info["id"])
    port = number(request.query, "port")
    if port is None:
        raise Refused(400, "invalid_port", "say which port")
    fleet.hide(box, port)
    return told(wire.DoneAnswer())


def _item(each: Hosting) -> wire.HostedPortItem:
    return wire.HostedPortItem(
        port=each.port,
        url=each.url_with_token,
        is_protected=not each.public,
        access="public" if each.public else "private",
        localhost=each.localhost,
        title=each.title or None,
    )


_HOST = "/sandboxes/{id}/host"
ROUTES = (("GET", _HOST, hosted), ("POST", _HOST, host), ("DELETE", _HOST, hide))
