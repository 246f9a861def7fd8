"""What a run that changes something has in its hands: locks, one event loop, connections, secrets."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mcpiac.commands import view
from mcpiac.commands.choose import Choice, qualify
from mcpiac.commands.loop import Loop
from mcpiac.model.plan import Plan, PlanOptions

if TYPE_CHECKING:
    from mcpiac.commands.context import Context
    from mcpiac.model.diagnostic import Diagnostic
    from mcpiac.model.live import LiveView
    from mcpiac.model.ports import Provider
    from mcpiac.model.record import State
    from mcpiac.model.spec import Stack
    from mcpiac.stack.project import Project
    from mcpiac.state.store import Session, Store


@dataclass(slots=True)
class Held:
    """``sessions`` and ``places`` (the provider's name) by stack, ``providers`` by their name."""

    context: Context
    project: Project
    store: Store
    sessions: dict[str, Session]
    loop: Loop
    open_ones: contextlib.ExitStack
    places: dict[str, str] = field(default_factory=dict)
    providers: dict[str, Provider] = field(default_factory=dict)
    secrets: dict[str, view.Secrets] = field(default_factory=dict)

    @property
    def states(self) -> dict[str, State]:
        """As they are now."""
        return {name: session.state for name, session in self.sessions.items()}

    def connect(self, places: Mapping[str, str]) -> None:
        """Each provider once, for as long as the run lasts."""
        self.places = dict(places)
        self.providers = self._open(sorted(set(places.values())))

    def _open(self, names: Sequence[str]) -> dict[str, Provider]:
        connection = view.connected(names, self.context.environ)
        opened = self.loop.run(connection.__aenter__())
        self.open_ones.callback(lambda: self.loop.run(connection.__aexit__(None, None, None)))
        return opened

    def others(self, plan: Plan) -> dict[str, Provider]:
        """instance id → connection, for a plan's actions on sandboxes of another provider than its own."""
        places = {held["id"]: held["provider"] for a in plan.actions if (held := a.payload.get("instance"))}
        missing = sorted(set(places.values()) - set(self.providers))
        if missing:
            self.providers |= self._open(missing)
        return {id: self.providers[name] for id, name in places.items()}

    def look(self) -> dict[str, LiveView]:
        """What is live, one list per provider."""
        return self.loop.run(view.refresh(self.providers, self.places, self.states))

    def recover(self, live: Mapping[str, LiveView], wanted: Mapping[str, Collection[str] | None]) -> list[Diagnostic]:
        """What an earlier run left open is found out before anything else. ``wanted``: stack → the servers that are
        still declared, None: all."""
        from mcpiac.executor.recover import recover

        findings: list[Diagnostic] = []
        for name, place in self.places.items():
            session = self.sessions[name]
            if session.state.open:
                provider, now = self.providers[place], datetime.now(UTC)
                work = recover(session.journal, live[place], provider, now=now, wanted=wanted.get(name))
                findings += self.loop.run(work)
        return findings

    def resolve(self, stack: str, lineage: str, wanted: view.Wanted) -> view.Secrets:
        """The secrets of a stack, kept for the run; the fingerprint key is made where there is none."""
        found = view.resolve(self.context, self.project.root, stack, lineage, wanted, create_key=True)
        self.secrets[stack] = found
        return found

    def plans(self, choice: Choice, options: PlanOptions) -> tuple[list[Plan], list[Diagnostic]]:
        """The plans of all chosen stacks, and what was found out about an earlier run."""
        servers = {
            c.name: {*(c.stack.servers if c.stack else ()), *self.states[c.name].servers} for c in choice.chosen
        }
        options = qualify(options, servers)
        live = self.look()
        kept = {c.name: () if options.destroy or c.stack is None else _wanted(c.stack) for c in choice.chosen}
        findings = self.recover(live, kept)
        states = self.states
        others = {name: self.store.read(name) for name in self.store.names() if name not in states}
        made = []
        for chosen in choice.chosen:
            place = self.places.get(chosen.name)
            if place is None:
                continue
            state = states[chosen.name]
            wanted = view.Wanted() if options.destroy else view.wanted_secrets(chosen)
            found = self.resolve(chosen.name, state.lineage, wanted)
            findings += found.warnings
            taken = view.taken_variables(chosen.name, choice, states, others)
            made.append(view.make(self.context, chosen, state, live[place], options, found, taken, place))
        return made, findings


def _wanted(stack: Stack) -> tuple[str, ...]:
    """The servers that a sandbox would be made for."""
    return tuple(name for name, spec in stack.servers.items() if not spec.disabled)


@contextlib.contextmanager
def held(
    context: Context, command: str, project: Project, store: Store, lineages: Mapping[str, str | None]
) -> Iterator[Held]:
    """The locks of all stacks, taken in order of name; ``lineages``: name → what a new state begins with, None: its
    own. Connections are closed before the locks are given back."""
    with contextlib.ExitStack() as open_ones:
        sessions = {
            name: open_ones.enter_context(store.lock(name, command, lineage=lineages[name]))
            for name in sorted(lineages)
        }
        loop = open_ones.enter_context(Loop())
        yield Held(context, project, store, sessions, loop, open_ones)
