"""``lifecycle.moved_from``: which recorded server goes on under which name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcpiac.model.diagnostic import Diagnostic, Origin
from mcpiac.model.record import State
from mcpiac.model.spec import Stack


@dataclass(frozen=True, slots=True)
class Moves:
    """``sources``: new name → old name, for the moves still to be made."""

    sources: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()


def resolve(stack: Stack, state: State) -> Moves:
    """The moves to make. One that was made, or whose source was never applied here, is nothing."""
    wishes = {name: spec.lifecycle.moved_from for name, spec in stack.servers.items() if spec.lifecycle.moved_from}
    sources: dict[str, str] = {}
    faults: list[Diagnostic] = []
    for name, source in wishes.items():
        fault = _fault(name, source, wishes, sources, stack, state)
        if fault is not None:
            code, summary, hint = fault
            origin = stack.origins.get(f"{name}.lifecycle") or stack.origins.get(name)
            faults.append(
                Diagnostic(
                    "error",
                    code,
                    summary,
                    address=f"{stack.name}/{name}",
                    origin=origin if isinstance(origin, Origin) else None,
                    hint=hint,
                )
            )
        elif source in state.servers:
            sources[name] = source
    return Moves(sources, tuple(faults))


def _fault(
    name: str,
    source: str,
    wishes: Mapping[str, str | None],
    sources: Mapping[str, str],
    stack: Stack,
    state: State,
) -> tuple[str, str, str] | None:
    if source == name:
        return "move-to-itself", f"`moved_from: {source}` names the server itself", "remove `moved_from`"
    if source in wishes:
        return (
            "move-chain",
            f"{name} is moved from {source}, which is itself moved from {wishes[source]}",
            f"name the server that the record has: `moved_from: {wishes[source]}`, and declare only the last name",
        )
    if source in stack.servers:
        return (
            "move-source-declared",
            f"{name} is moved from {source}, but {source} is still declared",
            f"remove {source} from the stack, or remove `moved_from`",
        )
    if source not in state.servers:
        return None
    if name in state.servers:
        return (
            "move-target-exists",
            f"{name} is moved from {source}, but both are recorded",
            f"remove `moved_from` (then {source} is deleted), or destroy {name} first",
        )
    taken = next((other for other, its in sources.items() if its == source), None)
    if taken is not None:
        return "move-twice", f"{taken} and {name} are both moved from {source}", "keep `moved_from` on one of them"
    return None
