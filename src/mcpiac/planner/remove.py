"""The end of a server, and of sandboxes that an unfinished replace left."""

from __future__ import annotations

from mcpiac.model.change import Change
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.record import ServerRecord
from mcpiac.planner import payloads, steps
from mcpiac.planner.context import Context
from mcpiac.planner.look import look
from mcpiac.planner.order import Step
from mcpiac.planner.result import Decision, blocked


def remove(ctx: Context, name: str, record: ServerRecord) -> Decision:
    """A server that is recorded and no longer wanted."""
    sandbox = ctx.state.sandboxes.get(record.sandbox)
    seen = look(sandbox, ctx.live, ctx.elsewhere.get(record.sandbox), ctx.now)
    target = sandbox.id if sandbox is not None else None
    left = leftovers(ctx, name)
    if seen.standing == "unreadable":
        return blocked(ctx, name, target, seen)
    why = "destroy" if ctx.options.destroy else "no longer in the stack"
    if seen.standing in ("gone", "none"):
        step = steps.record(record.sandbox, target, payloads.forget(), "its sandbox is gone already")
        return Decision(Change(name, "forget", f"{why}; its sandbox is gone already"), (step, *left))
    step = steps.delete(record.sandbox, target, forget=True, elsewhere=ctx.elsewhere.get(record.sandbox))
    faults = protected(ctx, name, None, record, "deleted")
    return Decision(Change(name, "delete", why), (step, *left), diagnostics=faults)


def left_alone(ctx: Context, name: str) -> Decision:
    """Sandboxes that an unfinished replace left, of a server that is neither declared nor recorded any more."""
    return Decision(Change(name, "delete", "left by an unfinished replace"), tuple(leftovers(ctx, name)))


def leftovers(ctx: Context, name: str) -> list[Step]:
    """Deletes of sandboxes that no server record points to; they come last in the server's chain."""
    return [
        steps.delete(
            key,
            ctx.state.sandboxes[key].id,
            forget=False,
            late=True,
            elsewhere=ctx.elsewhere.get(key),
            summary="left by an unfinished replace",
        )
        for key in ctx.leftovers.get(name, ())
    ]


def protected(
    ctx: Context, name: str, declared: bool | None, record: ServerRecord | None, what: str
) -> tuple[Diagnostic, ...]:
    """The error of ``prevent_destroy``, declared or recorded, for what would be deleted or replaced."""
    recorded = record is not None and bool((record.spec.get("lifecycle") or {}).get("prevent_destroy"))
    if not declared and not recorded:
        return ()
    if declared or declared is None:
        hint = "set `prevent_destroy: false` in the stack and apply that first, or leave it out with --exclude"
    else:
        hint = "apply `prevent_destroy: false` by itself first: run `mcpiac apply` without what replaces the server"
    where = "the stack" if declared else "the record of its last apply"
    return (
        ctx.diagnostic(
            "error",
            "prevent-destroy",
            name,
            f"{name} would be {what}, and `prevent_destroy` forbids that",
            key="lifecycle",
            detail=f"said in {where}; its disk and URL would be lost",
            hint=hint,
        ),
    )
