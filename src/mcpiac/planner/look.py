"""Live → how a recorded sandbox stands now, in the few ways that decisions depend on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mcpiac.model.live import STOPPED, Found, Gone, HostedPort, LiveView, Unreadable
from mcpiac.model.record import Instance, SandboxRecord

Standing = Literal["none", "gone", "unreadable", "elsewhere", "up", "stopped", "expired", "error"]
"""``none``: no record. ``elsewhere``: of another provider, which was not asked. ``up`` includes paused and starting.
``expired``: stopped by its deadline; ``stopped``: otherwise, by us or by somebody."""


@dataclass(frozen=True, slots=True)
class Look:
    """``found`` is None where live was not read; then nothing is drift. ``why`` goes with unreadable and error."""

    standing: Standing
    found: Found | None = None
    why: str = ""

    @property
    def hosted(self) -> dict[int, HostedPort] | None:
        """Live hosted ports, None where unknown."""
        return None if self.found is None or self.found.hosted is None else dict(self.found.hosted)


def look(record: SandboxRecord | None, live: LiveView, elsewhere: Instance | None, now: datetime) -> Look:
    """How the sandbox of this record stands. ``elsewhere``: the other provider that it belongs to, if any."""
    if record is None:
        return Look("none")
    if elsewhere is not None:
        return Look("elsewhere")
    if not live.read:
        return Look("stopped" if record.stopped else "up")
    now_live = live.sandboxes.get(record.id)
    if now_live is None:
        return Look("unreadable", why="the list did not carry it and nothing says that it does not exist")
    if isinstance(now_live, Unreadable):
        return Look("unreadable", why=now_live.why)
    if isinstance(now_live, Gone) or now_live.state == "cancelled":
        return Look("gone")
    if now_live.state == "error":
        return Look("error", now_live, now_live.error or "the provider says no more")
    if now_live.state in STOPPED or now_live.expired:
        return Look("expired" if _expired(now_live, now) and not record.stopped else "stopped", now_live)
    return Look("up", now_live)


def paused(found: Found) -> bool:
    """Whether its memory is frozen; that is no drift."""
    return found.state == "paused" or found.paused_at is not None


def running(found: Found) -> bool:
    """Whether it answers now without being woken."""
    return found.state not in STOPPED and found.state not in ("error", "cancelled") and not paused(found)


def _expired(found: Found, now: datetime) -> bool:
    if found.expired:
        return True
    if found.expires_at is None:
        return False
    deadline = datetime.fromisoformat(found.expires_at)
    if deadline.tzinfo is None:
        deadline = deadline.replace(tzinfo=now.tzinfo)
    return deadline <= now
