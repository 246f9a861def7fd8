"""What is recorded and, where asked, live: for the verbs that look at the fleet and change nothing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcpiac.commands import view
from mcpiac.commands.choose import address
from mcpiac.model.diagnostic import Diagnosed, error

if TYPE_CHECKING:
    from mcpiac.commands.context import Context
    from mcpiac.model.address import Address
    from mcpiac.model.live import LiveView
    from mcpiac.model.ports import Provider
    from mcpiac.model.record import SandboxRecord, ServerRecord, State
    from mcpiac.stack.project import Project


@dataclass(frozen=True, slots=True)
class Member:
    """One recorded server with its sandbox's record. ``name`` is unique in what was asked for: the server's own name,
    or STACK/NAME where two stacks have it."""

    address: Address
    name: str
    provider: str
    server: ServerRecord
    box: SandboxRecord


@dataclass(frozen=True, slots=True)
class Fleet:
    """The recorded stacks that were asked for, by name."""

    project: Project
    states: Mapping[str, State]

    def members(self) -> list[Member]:
        """Every recorded server that has a sandbox, in order of address."""
        from mcpiac.model.address import Address

        names = [name for state in self.states.values() for name in state.servers]
        found = []
        for stack, state in sorted(self.states.items()):
            for name, server in sorted(state.servers.items()):
                box = state.sandboxes.get(server.sandbox)
                if box is not None and state.instance is not None:
                    shown = name if names.count(name) == 1 else f"{stack}/{name}"
                    found.append(Member(Address(stack, name), shown, state.instance.provider, server, box))
        return found

    def only(self, member: Member) -> Fleet:
        """The fleet without the other stacks."""
        stack = member.address.stack
        return Fleet(self.project, {stack: self.states[stack]})

    def member(self, name: str) -> Member:
        """The one that a SERVER argument names; ``Diagnosed`` where there is none."""
        members = self.members()
        known: dict[str, list[str]] = {}
        for each in members:
            known.setdefault(each.address.stack, []).append(each.address.server)
        if not known:
            raise error("nothing-applied", "no server is recorded here yet", hint="`mcpiac apply` makes the fleet.")
        wanted = address(name, known)
        return next(m for m in members if m.address == wanted)


def recorded(context: Context, names: Sequence[str] = ()) -> Fleet:
    """The states of the stacks that ``names`` (files or names; none means all) stand for. Files are read only to
    learn the name in them: what is recorded speaks for itself."""
    from mcpiac.state.store import Store

    project = context.project()
    store = Store(project.root / "state")
    known = store.names()
    chosen = known
    if names:
        chosen = []
        for name in names:
            chosen += [name] if name in known else _declared(project, name)
    states = {name: state for name in dict.fromkeys(chosen) if (state := store.read(name)) is not None}
    return Fleet(project, states)


def _declared(project: Project, name: str) -> list[str]:
    from mcpiac.stack.load import read_stack

    readings = [read_stack(path, project.root) for path in project.select([name])]
    broken = [d for r in readings if r.stack is None for d in r.diagnostics]
    if broken:
        raise Diagnosed(*broken)
    return [r.stack.name for r in readings if r.stack is not None]


@contextlib.asynccontextmanager
async def reached(fleet: Fleet, context: Context) -> AsyncIterator[dict[str, Provider]]:
    """Connections to the fleet's providers, each at the instance that is recorded."""
    at = {state.instance.provider for state in fleet.states.values() if state.instance is not None}
    async with view.connected(sorted(at), context.environ) as providers:
        for stack, state in fleet.states.items():
            if state.instance is None:
                continue
            with view.told(f"the provider {state.instance.provider}"):
                now = await providers[state.instance.provider].instance()
            if now != state.instance:
                raise other_instance(stack, state.instance.id, now.id)
        yield providers


def other_instance(stack: str, recorded: str, now: str) -> Diagnosed:
    """Ids of two instances are never compared."""
    return error(
        "other-instance",
        f"{stack} is recorded at {recorded}, and this is {now}",
        detail="What is recorded there says nothing about what runs here.",
        hint="Use the account, or $MCPIAC_HOME, that it was applied with.",
    )


async def look(fleet: Fleet, providers: Mapping[str, Provider]) -> dict[str, LiveView]:
    """One list per provider."""
    places = {name: s.instance.provider for name, s in fleet.states.items() if s.instance is not None}
    return await view.refresh(providers, places, dict(fleet.states))
