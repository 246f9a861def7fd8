"""Sandboxes themselves: create, list, get, patch, stop, resume, delete; limits, who I am, the instance."""

from __future__ import annotations

import base64
import os
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from mcpiac import wire
from mcpiac._version import VERSION
from mcpiac.local import lifecycle
from mcpiac.local.api.app import ENDING, FLEET, body, number, told
from mcpiac.local.driver import SIZES
from mcpiac.local.errors import Refused
from mcpiac.local.fleet import UNSET, Unset, hosted_ports, stamp
from mcpiac.local.sandbox import Sandbox, boot_clock

_ENV_NAME = re.compile(wire.ENV_NAME)
_SUBDOMAIN = "subdomain"
TTL_MAX = 365 * 24 * 3600
IDLE_MAX = 10080
NAME_MAX = 200
KEY_MAX = 255
ANSWER_WAIT = 0.4
"""Seconds that a create or resume is held for the start, so that its answer can say ``ready``."""
SANDBOXES_MAX = 4095


def view(box: Sandbox) -> wire.Sandbox:
    """A sandbox as listed and got."""
    record = box.record
    size = SIZES[record.type]
    services = dict(box.services)
    return wire.Sandbox(
        id=record.id,
        name=record.name,
        state=box.state,
        error=record.error,
        health="degraded" if box.hosting_error else "ok",
        health_reason=box.hosting_error,
        type=record.type,
        vcpu=size.vcpu,
        created_at=stamp(record.created),
        updated_at=stamp(record.updated),
        archive_after=None if record.deadline is None else stamp(record.deadline),
        no_env=True,
        memory_restored=record.memory_restored,
        owner=record.owner,
        hosted=tuple(
            wire.HostedPortItem(
                port=each.port,
                url=each.url,
                is_protected=not each.public,
                access="public" if each.public else "private",
                localhost=each.localhost,
                title=each.title or None,
            )
            for each in hosted_ports(box)
        ),
        idle_minutes=record.idle_minutes,
        idle_in_seconds=lifecycle.idle_in(box.facts(), boot=boot_clock()),
        paused_at=None if box.paused_at is None else stamp(box.paused_at),
        expired=record.expired,
        services=services,
        memoryGB=size.memory_gb,
    )


def seen(box: Sandbox) -> dict[str, Any]:
    return view(box).model_dump(mode="json", by_alias=True)


async def listed(request: web.Request) -> web.Response:
    """``GET /sandboxes?limit=&cursor=&state=``."""
    limit = min(max(number(request.query, "limit", wire.LIST_MAX) or wire.LIST_MAX, 1), wire.LIST_MAX)
    states = {state for state in request.query.get("state", "").split(",") if state}
    after = _cursor(request.query.get("cursor"))
    found = [
        box
        for box in request.app[FLEET].all()
        if (not states or box.state in states) and (after is None or (box.record.created, box.id) > after)
    ]
    page, more = found[:limit], len(found) > limit
    cursor = _as_cursor(page[-1]) if more else None
    info = wire.PageInfo(next_cursor=cursor, has_more=more, limit=limit)
    return told(wire.SandboxPage(sandboxes=tuple(view(box) for box in page), page_info=info))


def _as_cursor(box: Sandbox) -> str:
    return base64.urlsafe_b64encode(f"{box.record.created!r} {box.id}".encode()).decode()


def _cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    try:
        created, _, id = base64.urlsafe_b64decode(text).decode().partition(" ")
        return float(created), id
    except ValueError:
        raise Refused(400, "invalid_cursor", "that cursor is none of ours") from None


async def create(request: web.Request) -> web.Response:
    """``POST /sandboxes``. The record is on disk before the answer; the start goes on after it if need be."""
    asked = await body(request, wire.CreateRequest)
    raw = await request.json() if request.can_read_body or await request.read() else {}
    if raw.get("from") is not None or raw.get("setupScript") is not None:
        raise Refused(501, "not_supported", "the embedded backend has no snapshots and no set-up scripts")
    key = request.headers.get(wire.HEADER_IDEMPOTENCY) or f"none-{secrets.token_hex(16)}"
    if len(key) > KEY_MAX:
        raise Refused(400, "invalid_request", f"an Idempotency-Key has at most {KEY_MAX} characters")
    size = check_size(asked.type)
    env = check_env(asked.env or {})
    ttl = check_ttl(asked.ttl_seconds)
    check_egress(asked.egress)
    if asked.secrets_at_rest not in (None, "disk"):
        raise Refused(400, "secrets_at_rest_unsupported", "secretsAtRest can only be `disk`")
    fleet = request.app[FLEET]
    inputs = {"type": size, "env": env, "ttlSeconds": ttl}
    box, new = fleet.create(key, size, ttl, env, inputs)
    if new:
        await box.settled(ANSWER_WAIT)
    status = "provisioning" if box.phase == "starting" else "ready"
    left = None if box.record.deadline is None else max(0, round(box.record.deadline - time.time()))
    return told(wire.CreateAnswer(status=status, ttl_seconds=left, sandbox=view(box)), 202)


async def get(request: web.Request) -> web.Response:
    return told(wire.SandboxAnswer(sandbox=view(request.app[FLEET].get(request.match_info["id"]))))


async def update(request: web.Request) -> web.Response:
    """``PATCH``: only what is set is changed; all of it is checked before any of it is."""
    asked = await body(request, wire.UpdateRequest)
    box, given = _box(request), asked.model_fields_set
    if asked.subdomain is not None:
        raise Refused(501, "not_supported", "hosted ports of the embedded backend have no subdomain")
    ttl = check_ttl(asked.ttl_seconds) if "ttl_seconds" in given else None
    if "idle_minutes" in given and not (asked.idle_minutes is not None and 0 <= asked.idle_minutes <= IDLE_MAX):
        raise Refused(400, "invalid_idle", f"idleMinutes must be 0 (off) to {IDLE_MAX}")
    if asked.name is not None and not 0 < len(asked.name) <= NAME_MAX:
        raise Refused(400, "invalid_name", f"a name has 1 to {NAME_MAX} characters")
    check_egress(asked.egress)
    record = box.record
    if asked.name is not None:
        record.name = asked.name
    if "ttl_seconds" in given:
        record.deadline = None if ttl is None else time.time() + ttl
    if asked.idle_minutes is not None:
        record.idle_minutes = asked.idle_minutes
        if box.paused_at is None:
            box.active()
    record.updated = time.time()
    box.folder.write(record)
    request.app[FLEET].look()
    return told(wire.SandboxAnswer(sandbox=view(box)))


async def stop(request: web.Request) -> web.Response:
    box = _box(request)
    await body(request, wire.StopRequest)
    request.app[FLEET].stop(box)
    return told(wire.ActionAnswer(id=box.id, status=box.state, sandbox=view(box)), 202)


async def resume(request: web.Request) -> web.Response:
    """``POST …/resume``; no-op (but for the TTL) when it runs."""
    asked = await body(request, wire.ResumeRequest)
    box = _box(request)
    size = None if asked.type is None else check_size(asked.type)
    env = None if asked.env is None else check_env(asked.env)
    ttl: int | Unset | None = check_ttl(asked.ttl_seconds) if "ttl_seconds" in asked.model_fields_set else UNSET
    fleet = request.app[FLEET]
    fleet.resume(box, size=size, env=env, ttl=ttl)
    await box.settled(ANSWER_WAIT)
    return told(wire.ActionAnswer(id=box.id, status=box.state, sandbox=view(box)), 202)


async def pause(request: web.Request) -> web.Response:
    """Extension: pause now. 409 ``sandbox_busy`` while something awaits an answer."""
    box = _box(request)
    box.pause()
    return told(wire.ActionAnswer(id=box.id, status=box.state, sandbox=view(box)))


async def wake(request: web.Request) -> web.Response:
    """Extension: wake now."""
    box = _box(request)
    box.require_up()
    box.wake()
    return told(wire.ActionAnswer(id=box.id, status=box.state, sandbox=view(box)))


async def delete(request: web.Request) -> web.Response:
    box = request.app[FLEET].get(request.match_info["id"])
    if request.headers.get(wire.HEADER_CONFIRM_DELETE) != box.id:
        raise Refused(400, "confirmation_required", f"{wire.HEADER_CONFIRM_DELETE} must hold the sandbox's id")
    return told(wire.DeletionAnswer(operation=request.app[FLEET].delete(box)), 202)


async def deletion(request: web.Request) -> web.Response:
    operation = request.app[FLEET].deletion(request.match_info["operation"])
    return told(wire.DeletionAnswer(type="deletion.operation", operation=operation))


async def limits(request: web.Request) -> web.Response:
    active = sum(1 for box in request.app[FLEET].all() if box.phase in ("starting", "up"))
    return told(
        wire.LimitsAnswer(
            can_start=True,
            active_sandboxes=active,
            max_active_sandboxes=SANDBOXES_MAX,
            start_limits=wire.StartLimits(),
            starts=wire.Starts(unlimited=True),
        )
    )


async def me(request: web.Request) -> web.Response:
    return told(wire.MeAnswer(user=wire.User(id=request.app[FLEET].instance.id, login="local")))


async def instance(request: web.Request) -> web.Response:
    return told(
        wire.InstanceAnswer(
            id=request.app[FLEET].instance.id,
            protocol=wire.PROTOCOL,
            version=VERSION,
            pid=os.getpid(),
        )
    )


async def shutdown(request: web.Request) -> web.Response:
    """Extension: end the daemon; sandboxes go on."""
    request.app[ENDING].set()
    return told(wire.DoneAnswer(type="daemon.ending"))


def _box(request: web.Request) -> Sandbox:
    return request.app[FLEET].use(request.match_info["id"])


def check_size(size: str) -> str:
    if size not in SIZES:
        raise Refused(400, "invalid_type", f"type must be one of {', '.join(SIZES)}")
    return size


def check_ttl(ttl: int | None) -> int | None:
    if ttl is not None and not 1 <= ttl <= TTL_MAX:
        raise Refused(400, "invalid_ttl", f"ttlSeconds must be null or 1 to {TTL_MAX}")
    return ttl


def check_env(env: Mapping[str, str]) -> dict[str, str]:
    """Names and sizes; a message names a variable, never its value."""
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name) or name in wire.RESERVED_ENV:
            raise Refused(400, "invalid_env", f"{name[:128]!r} cannot be set")
        if "\0" in value:
            raise Refused(400, "invalid_env", f"the value of {name} holds a zero byte")
    if len(env) > wire.ENV_MAX_COUNT:
        raise Refused(400, "invalid_env", f"at most {wire.ENV_MAX_COUNT} variables")
    if sum(len(name.encode()) + len(value.encode()) for name, value in env.items()) > wire.ENV_MAX_BYTES:
        raise Refused(400, "invalid_env", f"at most {wire.ENV_MAX_BYTES} bytes of variables")
    return dict(env)


def check_egress(egress: Any) -> None:
    """What cannot be enforced is refused."""
    kind = egress.get("kind") if isinstance(egress, Mapping) else egress
    if kind not in (None, "none"):
        raise Refused(400, "egress_unsupported", "only `egress: none` can be enforced here")


_ONE = "/sandboxes/{id}"
ROUTES = (
    ("GET", "/me", me),
    ("GET", "/limits", limits),
    ("GET", "/instance", instance),
    ("POST", "/shutdown", shutdown),
    ("GET", "/sandboxes", listed),
    ("POST", "/sandboxes", create),
    ("GET", _ONE, get),
    ("PATCH", _ONE, update),
    ("DELETE", _ONE, delete),
    ("POST", f"{_ONE}/stop", stop),
    ("POST", f"{_ONE}/resume", resume),
    ("POST", f"{_ONE}/pause", pause),
    ("POST", f"{_ONE}/wake", wake),
    ("GET", "/deletion-operations/{operation}", deletion),
)
