"""The state as records are applied to it: what a line of the journal means, in one place.

Applying a record costs the same in a fleet of ten and of ten thousand. ``State`` values made from a ledger share its
tables, so they show the state *now*; take them again after more lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mcpiac.model.action import Action, Entry
from mcpiac.model.record import AppliedPlan, Effect, Instance, SandboxRecord, ServerRecord, State


@dataclass(frozen=True, slots=True)
class Begin:
    """An action is about to be called. ``takes``: the open entry that it goes on with, which leaves. ``instance``:
    where it is called, which a create makes the state's own at once: what is in doubt is in doubt *there*."""

    number: int
    action: Action
    at: str
    plan: str = ""
    takes: int | None = None
    instance: Instance | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an open entry came."""

    number: int
    step: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """An open entry's outcome and all that it changes. ``done``: it counts as done for the plan it came from."""

    number: int
    ok: bool
    effect: Effect
    note: str = ""
    done: bool = True


Record = Begin | Progress | End


class Misfit(Exception):
    """A record that cannot follow the ones before it: the journal was not written by one run after another."""


class Ledger:
    """A state that records are applied to, in place."""

    def __init__(self, state: State) -> None:
        self._base = state
        self._instance = state.instance
        self._sandboxes = dict(state.sandboxes)
        self._servers = dict(state.servers)
        self._open = {entry.number: entry for entry in state.open}
        self._plan = state.plan.id if state.plan else ""
        self._done = dict.fromkeys(state.plan.done) if state.plan else {}
        self._next = max(self._open, default=0) + 1

    @property
    def state(self) -> State:
        """The state now."""
        return replace(
            self._base,
            instance=self._instance,
            sandboxes=self._sandboxes,
            servers=self._servers,
            open=tuple(self._open.values()),
            plan=AppliedPlan(self._plan, tuple(self._done)) if self._plan else None,
        )

    def sandbox(self, key: str) -> SandboxRecord | None:
        """One sandbox's record."""
        return self._sandboxes.get(key)

    def server(self, name: str) -> ServerRecord | None:
        """One server's record."""
        return self._servers.get(name)

    def entry(self, number: int) -> Entry:
        """An open entry; ``Misfit`` when it is not open."""
        try:
            return self._open[number]
        except KeyError:
            raise Misfit(f"entry {number} is not open") from None

    def take_number(self) -> int:
        """The number of the next entry."""
        number = self._next
        self._next += 1
        return number

    def rebase(self, state: State) -> None:
        """Go on over a new snapshot of the same content."""
        self._base = replace(state, sandboxes={}, servers={}, open=(), plan=None)

    def apply(self, record: Record) -> None:
        """One record; raises ``Misfit`` and changes nothing when it does not fit."""
        if isinstance(record, Begin):
            if record.number in self._open:
                raise Misfit(f"entry {record.number} was begun twice")
            if record.takes is not None:
                self.entry(record.takes)
                del self._open[record.takes]
            self._open[record.number] = Entry(record.number, record.action, record.at, record.plan)
            self._next = max(self._next, record.number + 1)
            self._instance = record.instance or self._instance
            if record.plan and record.plan != self._plan:
                self._plan, self._done = record.plan, {}
        elif isinstance(record, Progress):
            entry = self.entry(record.number)
            self._open[record.number] = replace(
                entry, step=record.step or entry.step, found=record.found or entry.found
            )
        else:
            entry = self.entry(record.number)
            del self._open[record.number]
            self._settle(record.effect)
            if record.ok and record.done and entry.plan == self._plan:
                self._done[entry.action.id] = None
            elif not entry.plan:
                self._plan, self._done = "", {}

    def _settle(self, effect: Effect) -> None:
        for key, sandbox in effect.sandboxes.items():
            if sandbox is None:
                self._sandboxes.pop(key, None)
            else:
                self._sandboxes[key] = sandbox
        for name, server in effect.servers.items():
            if server is None:
                self._servers.pop(name, None)
            else:
                self._servers[name] = server
        if effect.instance is not None:
            self._instance = effect.instance


def replay(state: State, records: Iterable[Record]) -> State:
    """The state after these records: a pure function. Raises ``Misfit``."""
    ledger = Ledger(state)
    for record in records:
        ledger.apply(record)
    return ledger.state
