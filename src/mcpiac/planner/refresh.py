"""``--refresh-only``: live is taken over into the record; nothing is sent and the stack file is not asked."""

from __future__ import annotations

from typing import Any

from mcpiac.model.change import Change, FieldChange
from mcpiac.model.record import ServerRecord
from mcpiac.planner import payloads, steps, words
from mcpiac.planner.context import Context
from mcpiac.planner.look import look
from mcpiac.planner.result import Decision, blocked


def accept(ctx: Context, name: str, record: ServerRecord) -> Decision:
    """What the record of one server takes over. Unknown is never taken over; a paused sandbox is none."""
    sandbox = ctx.state.sandboxes.get(record.sandbox)
    seen = look(sandbox, ctx.live, ctx.elsewhere.get(record.sandbox), ctx.now)
    target = sandbox.id if sandbox is not None else None
    if seen.standing == "unreadable":
        return blocked(ctx, name, target, seen)
    if sandbox is None or seen.standing == "gone":
        step = steps.record(record.sandbox, target, payloads.forget(), "its sandbox is gone")
        return Decision(Change(name, "forget", "its sandbox is gone", drift=True), (step,))
    found = seen.found
    if found is None:
        return Decision(Change(name, "noop"))
    taken: dict[str, Any] = {}
    fields: list[FieldChange] = []
    if found.idle is not None and found.idle != (sandbox.idle or 0):
        taken["idle"] = found.idle or None
        fields.append(FieldChange("idle", words.idle(sandbox.idle), words.idle(found.idle), drift=True))
    stopped = seen.standing == "stopped"
    if stopped != sandbox.stopped and seen.standing in ("stopped", "up"):
        taken["stopped"] = stopped
        sides = ("running", "stopped")
        fields.append(FieldChange("state", sides[sandbox.stopped], sides[stopped], drift=True))
    if words.known_size(found.size) and found.size != sandbox.size:
        taken["size"] = found.size
        fields.append(FieldChange("size", sandbox.size, found.size, drift=True))
    if seen.hosted is not None and record.hosted is not None:
        now = seen.hosted.get(record.hosted.port)
        old = words.hosted(record.hosted.port, record.hosted.access)
        if now is None:
            taken["hosted"] = None
            fields.append(FieldChange("hosted", old, "not hosted", drift=True))
        elif (now.access, now.localhost, now.title) != (
            record.hosted.access,
            record.hosted.localhost,
            record.hosted.title,
        ):
            taken["hosted"] = {
                "port": now.port,
                "url": now.url,
                "access": now.access,
                "localhost": now.localhost,
                "title": now.title,
            }
            new = words.hosted(now.port, now.access)
            fields.append(FieldChange("hosted", old, new if new != old else f"{new}, otherwise", drift=True))
    if not taken:
        return Decision(Change(name, "noop"))
    step = steps.record(record.sandbox, target, payloads.accept(**taken), "as it is now")
    return Decision(Change(name, "update", "the record takes over what is live", tuple(fields), drift=True), (step,))
