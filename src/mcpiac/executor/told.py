"""A failure as people read it: what, where, why, what is kept, and what to type next; no secret in it."""

from __future__ import annotations

from mcpiac.executor.redact import Redactor
from mcpiac.model.action import Action
from mcpiac.model.address import Address
from mcpiac.model.diagnostic import Diagnosed, Diagnostic
from mcpiac.model.outcome import ProviderError

LAST_LINES = 12
_OF_VERB = {"exec": "setup-failed", "check": "check-failed"}
_HINTS = {
    "unauthorised": "look at the credential of the provider (`mcpiac doctor`), then apply again",
    "in_doubt": "run `mcpiac apply` again: it first finds out what happened",
    "transient": "run `mcpiac apply` again: it goes on from here",
    "throttled": "wait a little, then run `mcpiac apply` again: it goes on from here",
    "conflict": "run `mcpiac plan` to see how it stands now",
}


def failure(
    stack: str, action: Action, fault: ProviderError, redactor: Redactor, kept: str | None, *, in_doubt: bool
) -> Diagnostic:
    """``kept`` is the id of a sandbox that exists and is recorded."""
    kind = "in_doubt" if in_doubt else fault.kind
    code = _OF_VERB.get(action.verb, "") if kind == "rejected" else ""
    lines = []
    if fault.code:
        lines.append(f"code {fault.code}")
    lines += fault.output.strip().splitlines()[-LAST_LINES:]
    if in_doubt:
        lines.append("whether it happened is not known; the next run finds out before it does anything else")
    elif kept:
        lines.append(f"created so far and kept: sandbox {kept} (recorded)")
    return Diagnostic(
        "error",
        code or f"provider-{kind.replace('_', '-')}",
        redactor.text(f"{action.verb}: {fault}"),
        detail=redactor.text("\n".join(lines)),
        address=str(Address(stack, action.server)),
        hint=redactor.text(fault.hint) or _HINTS.get(kind, "fix that, then run `mcpiac apply` again"),
    )


def refusal(stack: str, action: Action, fault: Diagnosed, redactor: Redactor) -> Diagnostic:
    """A finding that an action raised (a bridge that cannot do what is asked), with the action's address."""
    first = fault.diagnostics[0]
    return Diagnostic(
        first.severity,
        first.code,
        redactor.text(first.summary),
        detail=redactor.text(first.detail),
        address=first.address or str(Address(stack, action.server)),
        origin=first.origin,
        hint=redactor.text(first.hint),
    )
