"""Declared, recorded and live become plans: what plan, apply and destroy share before anything is shown."""

from __future__ import annotations

import contextlib
import secrets as randomness
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpiac.commands.choose import Choice, Chosen
from mcpiac.model.diagnostic import Diagnosed, Diagnostic
from mcpiac.model.live import LiveView
from mcpiac.model.outcome import ProviderError
from mcpiac.model.plan import Plan, PlanOptions
from mcpiac.model.record import Fingerprint, State

if TYPE_CHECKING:
    from mcpiac.commands.context import Context
    from mcpiac.model.ports import Provider
    from mcpiac.model.secret import Secret
    from mcpiac.model.spec import SecretRef


@dataclass(frozen=True, slots=True)
class Wanted:
    """``refs``: server → NAME → source; ``origins`` as a stack has them."""

    refs: Mapping[str, Mapping[str, SecretRef]] = field(default_factory=dict)
    origins: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Secrets:
    """Values by server and name, their traces, and what is wrong with a source. One stack's.

    ``traces``: NAME → None where the source has no value; a missing NAME was not compared.
    """

    values: dict[str, dict[str, Secret]] = field(default_factory=dict)
    traces: dict[str, dict[str, Fingerprint | None]] = field(default_factory=dict)
    faults: dict[str, list[Diagnostic]] = field(default_factory=dict)

    @property
    def warnings(self) -> list[Diagnostic]:
        """About sources that have their value all the same."""
        return [d for faults in self.faults.values() for d in faults if d.severity != "error"]


def provider_name(chosen: Chosen, state: State | None) -> str | None:
    """Which provider a stack is at: as declared, else as recorded; None where nothing is."""
    if chosen.stack is not None:
        return chosen.stack.provider
    return state.instance.provider if state is not None and state.instance is not None else None


def new_id() -> str:
    """128 random bits in hex: lineages, plan ids, idempotency keys."""
    return randomness.token_hex(16)


def resolve(context: Context, root: Path, name: str, lineage: str, wanted: Wanted, *, create_key: bool) -> Secrets:
    """Every server's secrets, from their sources, with their traces."""
    from mcpiac.secrets import fingerprint, sources

    found = Secrets()
    refs = {server: names for server, names in wanted.refs.items() if names}
    key = fingerprint.key(create_key, context.environ) if refs else None
    for server, names in refs.items():
        address = f"{name}/{server}"
        origin = partial(wanted.origins.get, f"{server}.secrets")
        values, found.faults[server] = sources.resolve(names, root, context.environ, address=address, origin=origin)
        found.values[server] = values
        found.traces[server] = {name: None for name in names if name not in values}
        if key is not None:
            for secret, value in values.items():
                version = names[secret].version
                found.traces[server][secret] = fingerprint.of(key, lineage, address, secret, value, version)
    return found


@contextlib.asynccontextmanager
async def connected(names: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[dict[str, Provider]]:
    """A connection to each provider by name; ``Diagnosed`` where one cannot be reached."""
    from mcpiac.providers import registry

    async with contextlib.AsyncExitStack() as open_ones:
        made: dict[str, Provider] = {}
        for name in names:
            with told(f"the provider {name}"):
                made[name] = await open_ones.enter_async_context(registry.connect(name, environ=environ))
        yield made


@contextlib.contextmanager
def told(about: str = "", address: str | None = None) -> Iterator[None]:
    """A provider's no as a diagnostic."""
    try:
        yield
    except ProviderError as fault:
        raise Diagnosed(provider_fault(fault, about, address)) from fault


def provider_fault(fault: ProviderError, about: str = "", address: str | None = None) -> Diagnostic:
    """``provider-<kind>``, with the service's own words, its last output and what to type."""
    said = f"{about}: {fault}" if about else str(fault)
    kind = fault.kind.replace("_", "-")
    return Diagnostic("error", f"provider-{kind}", said, detail=fault.output, address=address, hint=fault.hint)


async def refresh(
    providers: Mapping[str, Provider], stacks: Mapping[str, str], states: Mapping[str, State]
) -> dict[str, LiveView]:
    """One list per provider, for all its stacks. ``stacks``: name → provider."""
    views = {}
    for name, provider in providers.items():
        recorded = [
            id
            for stack, at in stacks.items()
            if at == name and _here(states[stack], name)
            for id in _ids(states[stack])
        ]
        with told(f"reading what runs at {name}"):
            views[name] = await provider.refresh(recorded)
    return views


def _ids(state: State) -> list[str]:
    """Recorded ones, and those that a create in doubt was answered."""
    return [box.id for box in state.sandboxes.values()] + [entry.found for entry in state.open if entry.found]


def _here(state: State, provider: str) -> bool:
    return state.instance is None or state.instance.provider == provider


def taken_variables(
    name: str, choice: Choice, states: Mapping[str, State], others: Mapping[str, State | None]
) -> frozenset[str]:
    """The variables that other stacks of the project have, or would take: neither of two gets the short name."""
    taken: set[str] = set()
    recorded: dict[str, State | None] = {**others, **states}
    declared = [c.stack for c in choice.chosen if c.stack is not None] + choice.rest
    for stack in declared:
        state = recorded.get(stack.name)
        if stack.name != name:
            fresh = set(stack.servers) - set(state.servers if state is not None else ())
            taken |= {server.upper().replace("-", "_") for server in fresh}
    for other, state in recorded.items():
        if other != name and state is not None:
            taken |= {record.variable for record in state.servers.values()}
    return frozenset(taken)


def make(
    context: Context,
    chosen: Chosen,
    state: State,
    live: LiveView,
    options: PlanOptions,
    secrets: Secrets,
    taken: frozenset[str],
    provider: str,
) -> Plan:
    """The plan of one stack."""
    from mcpiac.planner import plan
    from mcpiac.providers import registry

    return plan(
        None if options.destroy else chosen.stack,
        state,
        live,
        registry.traits(provider, context.environ),
        options=options,
        fingerprints=secrets.traces,
        now=datetime.now(UTC),
        ids=new_id,
        taken_variables=taken,
    )


def unread() -> LiveView:
    """Live as it was not asked."""
    return LiveView(instance=None, read=False)


def wanted_secrets(chosen: Chosen) -> Wanted:
    """Those of a declared stack. Of a server that moves, under the old name too: its recorded traces are made over
    that."""
    if chosen.stack is None:
        return Wanted()
    servers = chosen.stack.servers
    moved = {spec.lifecycle.moved_from: spec.secrets for spec in servers.values() if spec.lifecycle.moved_from}
    return Wanted({**moved, **{name: spec.secrets for name, spec in servers.items()}}, chosen.stack.origins)


def fresh(name: str) -> State:
    """The state of a stack that has none yet. A saved plan carries its lineage on."""
    return State(stack=name, lineage=new_id())
