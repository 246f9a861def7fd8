"""Findings about a plan as a whole: what forbids it, what it does not know, what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.live import Found, Gone, LiveView
from mcpiac.model.plan import PlanOptions
from mcpiac.model.record import State
from mcpiac.model.spec import Stack
from mcpiac.planner import words
from mcpiac.planner.context import Context
from mcpiac.planner.result import Decision
from mcpiac.planner.select import Selection

FEW = 3
"""So many may be gone at once without a word, whatever share of the stack they are."""


def other_instance(state: State, live: LiveView) -> Diagnostic | None:
    """Another instance of the same provider: its list says nothing about what is recorded."""
    old, new = state.instance, live.instance
    if old is None or new is None or old.provider != new.provider or old.id == new.id or not state.sandboxes:
        return None
    return Diagnostic(
        "error",
        "other-instance",
        f"{state.stack} is recorded at {old.provider} {old.id}, and this is {new.provider} {new.id}",
        detail="what is not in this one's list is not gone: it was never here; nothing was planned",
        hint="use the account, address or machine of the recorded one, or give this stack another name",
    )


def all_removed(
    stack: Stack | None, state: State, options: PlanOptions, chosen: Sequence[Decision]
) -> Iterator[Diagnostic]:
    """A stack that was emptied, which more often is a slip than a wish."""
    if stack is None or stack.servers or options.destroy or options.refresh_only or options.allow_empty:
        return
    if state.servers and chosen:
        yield Diagnostic(
            "error",
            "empty-stack",
            f"{stack.name} declares no server, and {words.count(len(state.servers), 'server')} would be destroyed",
            hint=f"`mcpiac destroy {stack.name}` if that is meant, or --allow-empty",
        )


def many_gone(state: State, live: LiveView, options: PlanOptions) -> Iterator[Diagnostic]:
    """More than half (and more than three) of what is recorded is gone: perhaps the wrong place was asked."""
    if not live.read or options.allow_gone:
        return
    ids = [record.id for record in state.sandboxes.values()]
    gone = [id for id in ids if _is_gone(live, id)]
    if len(gone) > FEW and 2 * len(gone) > len(ids):
        yield Diagnostic(
            "error",
            "many-gone",
            f"{len(gone)} of {len(ids)} recorded sandboxes of {state.stack} are gone",
            detail=f"gone: {words.names(gone)}",
            hint="look whether this is the right account or machine; if they are really gone: --allow-gone",
        )


def _is_gone(live: LiveView, id: str) -> bool:
    now = live.sandboxes.get(id)
    return isinstance(now, Gone) or (isinstance(now, Found) and now.state == "cancelled")


def idle_unset(ctx: Context, chosen: Sequence[Decision]) -> Iterator[Diagnostic]:
    """Idle delays that the provider cannot set now; no pending change."""
    names = [one.change.server for one in chosen if one.idle_unset]
    if names:
        yield Diagnostic(
            "warning",
            "idle-not-settable",
            f"the idle delay of {words.names(names)} cannot be set at the provider {ctx.traits.provider} from here",
            detail="it keeps the delay that it has; this is no pending change",
            hint="`mcpiac doctor` says what is missing",
        )


def orphans(state: State, live: LiveView) -> Iterator[Diagnostic]:
    """Live, with this stack's marker, in no record and in no open entry."""
    known = {record.id for record in state.sandboxes.values()} | {entry.found for entry in state.open}
    keys = {entry.action.key for entry in state.open if entry.action.key}
    for found in live.sandboxes.values():
        if not isinstance(found, Found) or found.id in known or found.owner is None:
            continue
        lineage, _, rest = found.owner.partition("/")
        server, _, key = rest.partition("/")
        if lineage == state.lineage and key not in keys:
            yield Diagnostic(
                "warning",
                "orphan",
                f"the sandbox {found.id} is this stack's ({server}), and no record knows it",
                address=f"{state.stack}/{server}",
                hint=f"`mcpiac adopt {state.stack}/{server} {found.id}` or `mcpiac destroy --orphans`",
            )


def in_doubt(state: State) -> Iterator[Diagnostic]:
    """Actions that were begun and never ended."""
    for entry in state.open:
        action = entry.action
        known = f" (sandbox {entry.found or action.target})" if entry.found or action.target else ""
        yield Diagnostic(
            "note",
            "in-doubt",
            f"in doubt: {action.verb} of {action.server}{known} was begun at {entry.began_at} and never ended",
            address=f"{state.stack}/{action.server}",
            hint="the next `mcpiac apply` finds out before it does anything else",
        )


def not_compared(ctx: Context, chosen: Sequence[Decision]) -> Iterator[Diagnostic]:
    """Secrets whose value could not be compared with the one that was sent."""
    names = [f"{one.change.server} {name}" for one in chosen for name in one.unknown]
    if names:
        yield Diagnostic(
            "note",
            "secrets-not-compared",
            f"not compared: {words.names(names)}",
            detail="no value now, or no key (or another one) to compare with; they count as unchanged",
            hint="set their sources, and MCPIAC_FINGERPRINT_KEY to the key that was used, to have them compared",
        )


def left_out(state: State, selection: Selection, decisions: Sequence[Decision]) -> Iterator[Diagnostic]:
    """What a selection leaves out, and which of it would change."""
    out = [one.change for one in decisions if not selection.has(one.change.server)]
    if out:
        differ = [f"{change.server} ({change.kind})" for change in out if change.kind != "noop"]
        rest = f"; of these would change: {words.names(differ)}" if differ else "; none of these would change"
        yield Diagnostic(
            "note",
            "left-out",
            f"{selection.flags} leaves out {words.count(len(out), 'server')} of {state.stack}: "
            f"{words.names(change.server for change in out)}{rest}",
        )
