"""What a decision about one server is, and the two that are the same for all: nothing to do, and nothing known."""

from __future__ import annotations

from dataclasses import dataclass

from mcpiac.model.change import Change
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.spec import ServerSpec
from mcpiac.planner.context import Context
from mcpiac.planner.look import Look
from mcpiac.planner.order import Step


@dataclass(frozen=True, slots=True)
class Decision:
    """One server's change, its steps in any order, and the spec that they work by.

    ``unknown``: secrets that were not compared. ``idle_unset``: an idle delay that the provider cannot set.
    """

    change: Change
    steps: tuple[Step, ...] = ()
    spec: ServerSpec | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    unknown: tuple[str, ...] = ()
    idle_unset: bool = False


def blocked(ctx: Context, name: str, target: str | None, seen: Look) -> Decision:
    """A server whose sandbox could not be read: nothing is done to it, and nothing is concluded."""
    finding = ctx.diagnostic(
        "warning",
        "unreadable",
        name,
        f"the sandbox {target} of {name} could not be read: {seen.why}",
        detail="whether it exists is not known, so nothing is planned for it",
        hint="run `mcpiac plan` again; if it stays so, look at it at the provider",
    )
    return Decision(Change(name, "blocked", f"its sandbox could not be read: {seen.why}"), diagnostics=(finding,))
