"""One server at a time: which kind of change it needs, and who works it out."""

from __future__ import annotations

from dataclasses import replace as with_values

from mcpiac.model.change import Change
from mcpiac.model.codec import recorded_view
from mcpiac.model.record import ServerRecord
from mcpiac.model.spec import ServerSpec
from mcpiac.planner import choose, create, payloads, steps
from mcpiac.planner.context import Case, Context
from mcpiac.planner.look import look
from mcpiac.planner.refuse import refuse
from mcpiac.planner.remove import leftovers
from mcpiac.planner.result import Decision, blocked
from mcpiac.planner.traces import NOTHING
from mcpiac.planner.update import update
from mcpiac.planner.work import move_step, unset_notes


def decide(ctx: Context, name: str, spec: ServerSpec, record: ServerRecord | None, moved: str | None) -> Decision:
    """A declared server. ``record`` is the one under its old name where it is ``moved``."""
    key = record.sandbox if record is not None else ""
    sandbox = ctx.state.sandboxes.get(key)
    seen = look(sandbox, ctx.live, ctx.elsewhere.get(key), ctx.now)
    if seen.standing == "unreadable" and sandbox is not None:
        decision = blocked(ctx, name, sandbox.id, seen)
    else:
        port = choose.port(spec, record)
        case = Case(name, spec, recorded_view(spec), record, sandbox, seen, port, moved)
        decision = _make(ctx, case) if seen.standing in ("none", "gone") else update(ctx, case)
    faults = tuple(refuse(ctx, name, spec))
    return with_values(decision, diagnostics=(*faults, *decision.diagnostics)) if faults else decision


def _make(ctx: Context, case: Case) -> Decision:
    """No sandbox: one is made, unless the server is disabled."""
    name, record, sandbox = case.name, case.record, case.sandbox
    gone = f"its sandbox {sandbox.id} is gone" if sandbox is not None else ""
    left = leftovers(ctx, name)
    if case.spec.disabled:
        if record is None:
            return Decision(Change(name, "noop", "disabled, so none is made"), tuple(left))
        target = sandbox.id if sandbox is not None else None
        step = steps.record(record.sandbox, target, payloads.forget(), gone)
        return Decision(Change(name, "forget", f"{gone}, and it is disabled", drift=True), (step, *left))
    made = create.chain(ctx, case, record.sandbox if record is not None else ctx.names.key(name))
    if case.moved is not None:
        made.append(move_step(ctx, case, NOTHING))
    notes = unset_notes(ctx, case, made, create.unset(ctx, case))
    change = Change(name, "create", gone or "not made yet", drift=sandbox is not None, moved_from=case.moved)
    return Decision(change, (*made, *left), case.spec, notes, idle_unset=not ctx.traits.idle_settable)
