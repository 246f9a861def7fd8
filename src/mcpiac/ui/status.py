"""How each server is now, as a table and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from mcpiac.model.live import STOPPED, Found, Gone, Live, Unreadable
from mcpiac.model.record import ServerRecord
from mcpiac.ui import escape
from mcpiac.ui.table import columns
from mcpiac.ui.words import moment, span

HEAD = ("SERVER", "STATE", "VERSION", "IDLE", "TTL", "URL")
_SICK = frozenset({"backoff", "failed"})


@dataclass(frozen=True, slots=True)
class Row:
    """One server's. ``state``: running, paused, starting, error, stopped, expired, gone, unreadable, unknown,
    not-applied. Times are seconds; ``idle`` minutes, None: off or unknown. ``error`` is the last one, in words."""

    stack: str
    server: str
    state: str
    version: str | None = None
    url: str | None = None
    access: str | None = None
    idle: int | None = None
    idle_in: int | None = None
    ttl_left: int | None = None
    paused_for: int | None = None
    error: str | None = None
    next: str | None = None


def row(stack: str, name: str, record: ServerRecord, idle: int | None, live: Live | None, now: datetime) -> Row:
    """One recorded server beside what the provider says now. ``idle`` is the recorded delay in minutes."""
    package = record.spec.get("package") or {}
    base: dict[str, Any] = {
        "stack": stack,
        "server": name,
        "version": package.get("version"),
        "url": record.endpoint,
        "access": record.hosted.access if record.hosted else None,
        "idle": idle,
    }
    again = "mcpiac apply"
    if live is None:
        return Row(state="unknown", **base)
    if isinstance(live, Gone):
        return Row(state="gone", error="its sandbox no longer exists", next=again, **base)
    if isinstance(live, Unreadable):
        return Row(state="unreadable", error=live.why, **base)
    service = live.services.get(record.service) or {}
    state = _state(live, service)
    error, then = None, None
    if state == "error":
        error, then = _why(live, service), f"mcpiac logs {name}"
    elif record.tainted:
        error, then = f"the last apply failed: {record.tainted}", again
    elif live.hosted is not None and record.hosted is not None and record.hosted.port not in live.hosted:
        error, then = f"port {record.hosted.port} is no longer hosted", again
    elif state == "expired":
        error, then = "its TTL ended", f"mcpiac apply --renew --target {name}"
    deadline = moment(live.expires_at) if live.expires_at else None
    since = moment(live.paused_at) if live.paused_at else None
    return Row(
        state=state,
        idle_in=live.idle_in,
        ttl_left=max(0, round((deadline - now).total_seconds())) if deadline else None,
        paused_for=max(0, round((now - since).total_seconds())) if since else None,
        error=error,
        next=then,
        **base,
    )


def _state(live: Found, service: Mapping[str, Any]) -> str:
    if live.state == "error":
        return "error"
    if live.expired:
        return "expired"
    if live.state in STOPPED:
        return "stopped"
    if live.state == "paused" or live.paused_at:
        return "paused"
    if service.get("state") in _SICK:
        return "error"
    if live.state in ("ready", "running", "idle"):
        return "starting" if service.get("state") == "starting" else "running"
    return "starting"


def _why(live: Found, service: Mapping[str, Any]) -> str:
    if not service:
        return live.error or "the provider says no more"
    told = str(service.get("last_exit") or "it does not stay up")
    restarts = int(service.get("restarts") or 0)
    if restarts:
        told += f", restarted {restarts} times"
    lines = [line for line in service.get("last_lines") or () if str(line).strip()]
    return f'{told}: "{lines[-1]}"' if lines else told


def table(rows: Sequence[Row], providers: Mapping[str, str]) -> str:
    """A block per stack. ``providers``: stack → provider."""
    parts = []
    for stack in dict.fromkeys(r.stack for r in rows):
        mine = [r for r in rows if r.stack == stack]
        cells = [HEAD, *(_cells(r) for r in mine)]
        lines = columns(cells)
        shown = [lines[0]]
        for each, line in zip(mine, lines[1:], strict=True):
            shown.append(line)
            if each.url and each.error:
                shown.append(f"    {escape.cut(escape.line(each.error), 116)}")
            if each.next:
                shown.append(f"    {escape.line(each.next)}")
        parts.append("\n".join([f"{stack}  {providers.get(stack, '–')}", *shown]))
    return "\n\n".join(parts)


def _cells(row: Row) -> tuple[str, ...]:
    state = f"paused {span(row.paused_for)} ago" if row.paused_for is not None else row.state
    idle = "–"
    if row.state == "paused" and row.idle:
        idle = f"{row.idle} min"
    elif row.idle_in is not None:
        idle = f"in {span(row.idle_in)}" if row.idle_in else "now"
    elif row.idle and row.state == "running":
        idle = f"{row.idle} min"
    left = span(row.ttl_left) if row.ttl_left is not None else "–"
    return (row.server, state.replace("-", " "), row.version or "–", idle, left, row.url or row.error or "not hosted")


def data(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The rows as JSON-ready data, by STACK/NAME."""
    return {f"{row.stack}/{row.server}": asdict(row) for row in rows}
