"""Sandboxes that are ours by their marker and stand in no record."""

from __future__ import annotations

from mcpiac.model.live import Found, LiveView
from mcpiac.model.record import State


def find(state: State, live: LiveView) -> list[Found]:
    """Live, with this state's marker, in no record and in no open entry; only where the list carries the marker."""
    known = {box.id for box in state.sandboxes.values()} | {entry.found for entry in state.open}
    keys = {entry.action.key for entry in state.open if entry.action.key}
    found = []
    for one in live.sandboxes.values():
        if isinstance(one, Found) and one.owner is not None and one.id not in known:
            lineage, _, rest = one.owner.partition("/")
            if lineage == state.lineage and rest.rpartition("/")[2] not in keys:
                found.append(one)
    return sorted(found, key=lambda one: one.id)
