"""Plans, events and diagnostics as JSON, one versioned object a line (``docs/events.md``)."""

from __future__ import annotations

import json
from typing import Any

from mcpiac.model.action import Action
from mcpiac.model.codec import plain
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.event import EVENT_VERSION, Event
from mcpiac.model.plan import Plan
from mcpiac.ui.text import tally

TYPES = {
    "RunStarted": "run-started",
    "ActionStarted": "action-started",
    "ActionProgress": "action-progress",
    "ActionRetrying": "action-retrying",
    "ActionDone": "action-done",
    "ActionFailed": "action-failed",
    "ActionSkipped": "action-skipped",
    "RunFinished": "run-finished",
}


def encode(kind: str, body: dict[str, Any]) -> str:
    """One line: ``version`` and ``type`` first. Non-ASCII is escaped, so that no line can act on a terminal."""
    return json.dumps({"version": EVENT_VERSION, "type": kind, **body}, ensure_ascii=True, separators=(",", ":"))


def plan(value: Plan) -> str:
    """``plan``: what differs and the steps, without file contents."""
    return encode(
        "plan",
        {
            "id": value.id,
            "stack": value.stack,
            "provider": value.provider,
            "lineage": value.lineage,
            "serial": value.base_serial,
            "created_at": value.created_at,
            "pending": value.pending,
            "counts": dict(sorted(tally([value]).items())),
            "running": value.running,
            "paused": value.paused,
            "live": {"read": value.live_read, "seconds": round(value.live_seconds, 4)},
            "options": plain(value.options),
            "changes": [plain(c) for c in value.changes],
            "actions": [action(a) for a in value.actions],
            "diagnostics": [plain(d) for d in value.diagnostics],
        },
    )


def action(value: Action) -> dict[str, Any]:
    """An action without its payload: ids, verb, order and what a reader sees."""
    return {
        "id": value.id,
        "server": value.server,
        "verb": value.verb,
        "sandbox": value.sandbox,
        "summary": value.summary,
        "after": list(value.after),
    }


def event(value: Event) -> str:
    """One event of a run."""
    body: dict[str, Any] = {}
    for field in value.__dataclass_fields__:
        held = getattr(value, field)
        if isinstance(held, Action):
            body[field] = held.id
        elif field == "actions":
            body[field] = [action(a) for a in held]
        else:
            body[field] = plain(held)
    return encode(TYPES[type(value).__name__], body)


def diagnostic(value: Diagnostic) -> str:
    """``diagnostic``: a finding outside a plan."""
    return encode("diagnostic", plain(value))
