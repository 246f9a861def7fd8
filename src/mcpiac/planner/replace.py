"""A server that needs a new sandbox: the new one first, checked, then the old one hidden and deleted."""

from __future__ import annotations

from collections.abc import Sequence

from mcpiac.model.change import Change, FieldChange
from mcpiac.planner import create, steps
from mcpiac.planner.context import Case, Context
from mcpiac.planner.remove import leftovers, protected
from mcpiac.planner.result import Decision
from mcpiac.planner.traces import NOTHING
from mcpiac.planner.work import move_step, unset_notes


def replace(ctx: Context, case: Case, fields: tuple[FieldChange, ...], changed: Sequence[str]) -> Decision:
    """``changed``: the fields that ask for it; none where ``--replace`` or another provider does."""
    record, sandbox = case.known
    old, elsewhere = record.sandbox, ctx.elsewhere.get(record.sandbox)
    made = create.chain(ctx, case, ctx.names.key(case.name))
    if case.moved is not None:
        made.append(move_step(ctx, case, NOTHING))
    live = case.look.hosted
    ports = set(live or ()) | ({record.hosted.port} if record.hosted is not None and live is None else set())
    for port in sorted(ports):
        made.append(steps.hide(old, port, sandbox.id, "of the old sandbox", late=True, elsewhere=elsewhere))
    made.append(steps.delete(old, sandbox.id, forget=False, late=True, elsewhere=elsewhere))
    made += leftovers(ctx, case.name)
    if elsewhere is not None:
        why = f"the provider changed from {elsewhere.provider} to {ctx.traits.provider}"
    elif changed:
        why = f"{', '.join(changed)} changed, which needs a new sandbox"
    else:
        why = "asked for by --replace"
    declared = case.spec.lifecycle.prevent_destroy
    return Decision(
        Change(case.name, "replace", f"{why}; its disk and URL are lost", fields, moved_from=case.moved),
        tuple(made),
        case.spec,
        (
            *protected(ctx, case.name, declared, record, "replaced"),
            *unset_notes(ctx, case, made, create.unset(ctx, case)),
        ),
        idle_unset=not ctx.traits.idle_settable,
    )
