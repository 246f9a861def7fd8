"""What the provider says now, as values: found, gone, or unreadable; never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpiac.model.record import Instance

USABLE = frozenset({"ready", "idle", "running", "paused"})
"""States in which a sandbox answers (a paused one after waking)."""

STOPPED = frozenset({"archived", "archiving"})


@dataclass(frozen=True, slots=True)
class HostedPort:
    """A hosted port as listed. ``url`` has its token cut off."""

    port: int
    url: str
    access: str
    localhost: bool
    title: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A sandbox that exists. None means *unknown* (not carried by the list), which is never drift.

    ``expires_at`` ISO 8601 UTC or None (no TTL). ``idle`` minutes, 0 = off, None = unknown. ``owner`` is the
    marker ``<lineage>/<server>/<key>`` where the list carries it. ``services``: name → state text.
    """

    id: str
    name: str
    state: str
    created_at: str = ""
    owner: str | None = None
    size: str | None = None
    expires_at: str | None = None
    expired: bool = False
    idle: int | None = None
    idle_in: int | None = None
    paused_at: str | None = None
    hosted: Mapping[int, HostedPort] | None = None
    error: str | None = None
    memory_restored: bool | None = None
    services: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gone:
    """It does not exist: seen in a complete list and by a 404 for its id."""

    id: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """It could not be read, and why: blocks its server, says nothing about whether it exists."""

    id: str
    why: str


Live = Found | Gone | Unreadable


@dataclass(frozen=True, slots=True)
class LiveView:
    """One whole refresh of a provider: all pages, and the 404s of recorded ids that the list lacked.

    ``read`` False: not refreshed (``--no-refresh``); then nothing is drift. ``seconds`` is how long it took.
    """

    instance: Instance | None
    sandboxes: Mapping[str, Live] = field(default_factory=dict)
    read: bool = True
    seconds: float = 0.0
    requests: int = 0
