"""The chain of a new sandbox: create, name, set up, host, set the idle delay, check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from mcpiac.model.action import Entry
from mcpiac.planner import steps, words
from mcpiac.planner.context import Case, Context
from mcpiac.planner.fields import EXEC_FIELDS, FIELDS
from mcpiac.planner.order import Step

KEY_LIVES = timedelta(hours=1)
"""How long a create whose answer was lost is sent again with its key (DESIGN: younger than an hour)."""

_SENT = ("size", "ttl", "egress", "secrets_at_rest", "secrets", "port", "name")
_HOST_FIELDS = frozenset({"hosted", "access", "title"})


def chain(ctx: Context, case: Case, sandbox: str) -> list[Step]:
    """All steps of a server in a new sandbox; ``sandbox`` is the key of the sandbox's record.

    Whatever no later step settles is settled by the create, so that the plan after a run that went well is empty.
    """
    spec = case.spec
    sets_idle = ctx.traits.idle_settable
    later = {*EXEC_FIELDS, "port", "idle", *(_HOST_FIELDS if spec.hosted else ())}
    entry = _repeated(ctx, case)
    if entry is not None and entry.action.key is not None:
        sandbox, key, variable = entry.action.sandbox, entry.action.key, entry.action.payload["variable"]
    else:
        key = ctx.ids()
        variable = case.record.variable if case.record is not None else ctx.names.variable(case.name)
    made = [
        steps.create(ctx, case, sandbox, key, variable, [name for name in FIELDS if name not in later]),
        steps.rename(ctx, case, sandbox, None),
        steps.execute(ctx, case, sandbox, None, (*EXEC_FIELDS, "port"), setup_summary(case), fresh=True),
    ]
    if spec.hosted:
        made.append(steps.host(case, sandbox, None, sorted(_HOST_FIELDS)))
    if sets_idle:
        made.append(steps.idle(case, sandbox, None, ["idle"]))
    made.append(steps.check(case, sandbox, None))
    return made


def unset(ctx: Context, case: Case) -> tuple[str, ...]:
    """Declared secrets that are known to have no value now."""
    current = ctx.fingerprints.get(case.name) or {}
    return tuple(name for name in sorted(case.spec.secrets) if name in current and current[name] is None)


def setup_summary(case: Case) -> str:
    files = len(case.spec.files)
    return words.program(case.spec) + (f" · {words.count(files, 'file')}" if files else "")


def _repeated(ctx: Context, case: Case) -> Entry | None:
    """The open create of this server that may be sent again with its key: young, and with the very same inputs.

    A repeated POST must say the same as the first; with other inputs, or secrets that differ or cannot be compared,
    it is another create.
    """
    for entry in _creates(ctx, case.name):
        began = datetime.fromisoformat(entry.began_at)
        if began.tzinfo is None:
            began = began.replace(tzinfo=ctx.now.tzinfo)
        if ctx.now - began > KEY_LIVES:
            continue
        key = entry.action.key or ""
        wanted = steps.create(ctx, case, entry.action.sandbox, key, "", ()).payload
        if _same(entry.action.payload, wanted):
            return entry
    return None


def _creates(ctx: Context, server: str) -> Iterator[Entry]:
    for entry in ctx.state.open:
        if entry.action.verb == "create" and entry.action.server == server and entry.action.key:
            yield entry


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if any(old.get(name) != new[name] for name in _SENT):
        return False
    before, after = old.get("fingerprints", {}), new["fingerprints"]
    for name in new["secrets"]:
        if name not in before or name not in after:
            return False
        if (before[name]["key_id"], before[name]["mac"]) != (after[name]["key_id"], after[name]["mac"]):
            return False
    return True
