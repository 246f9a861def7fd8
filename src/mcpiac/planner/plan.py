"""The whole plan of one stack: every server decided, the selection made, guards asked, actions put in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace as with_values
from datetime import datetime

from mcpiac.model.action import Action
from mcpiac.model.live import Found, LiveView
from mcpiac.model.plan import Plan, PlanOptions
from mcpiac.model.record import Instance, State
from mcpiac.model.spec import ServerSpec, Stack
from mcpiac.model.traits import Traits
from mcpiac.planner import guards, moves, order, payloads
from mcpiac.planner.choose import Names, owner_server
from mcpiac.planner.context import Context
from mcpiac.planner.decide import decide
from mcpiac.planner.look import paused, running
from mcpiac.planner.refresh import accept
from mcpiac.planner.remove import left_alone, remove
from mcpiac.planner.result import Decision
from mcpiac.planner.select import select
from mcpiac.planner.traces import Current


def plan(
    stack: Stack | None,
    state: State,
    live: LiveView,
    traits: Traits,
    *,
    options: PlanOptions,
    fingerprints: Mapping[str, Current],
    now: datetime,
    ids: Callable[[], str],
    taken_variables: frozenset[str] = frozenset(),
) -> Plan:
    """What differs between ``stack``, ``state`` and ``live``, and the actions that mend it.

    Pure: the same values (and the same answers of ``ids``) give the same plan; nothing is read or asked.

    ``stack`` None (its file is gone) and ``options.destroy`` plan the end of all that is recorded. ``live`` is one
    refresh of the provider that ``traits`` speak of. ``fingerprints``: server → NAME → the trace of the value that
    the secret's source has now, None where it has none (unset); a missing name or server is not compared (no key, or
    nothing was resolved). Of a server with ``moved_from``, the traces made over the *old* address stand under the old
    name. ``now`` is aware (UTC). ``ids`` gives a fresh random text at each call: the plan's id, idempotency keys.
    ``taken_variables`` are the recorded prefixes of the project's other stacks. Findings that forbid an apply are
    ``Plan.errors``; changes and actions are there all the same, save where the instance is another one.
    """
    identity = ids()
    whole = stack is None or options.destroy or options.refresh_only
    wanted: Mapping[str, ServerSpec] = {} if stack is None or whole else stack.servers
    base = Plan(
        id=identity,
        stack=state.stack,
        provider=traits.provider,
        lineage=state.lineage,
        base_serial=state.serial,
        stack_digest=stack.digest if stack is not None else "",
        created_at=now.isoformat(timespec="seconds"),
        instance=live.instance or state.instance,
        options=options,
        live_read=live.read,
        live_seconds=live.seconds,
        running=sum(1 for found in _recorded(state, live) if running(found)),
        paused=sum(1 for found in _recorded(state, live) if paused(found)),
    )
    other = guards.other_instance(state, live)
    if other is not None:
        return with_values(base, diagnostics=(other, *guards.in_doubt(state)))

    moved = moves.resolve(stack, state) if stack is not None and not whole else moves.Moves()
    goners = [name for name in state.servers if name not in wanted and name not in moved.sources.values()]
    labels = {
        **{name: state.servers[name].spec.get("labels") or {} for name in goners},
        **{name: spec.labels for name, spec in wanted.items()},
    }
    selection = select(state.stack, options, labels, moved.sources)
    ctx = Context(
        stack=state.stack,
        state=state,
        live=live,
        traits=traits,
        options=options,
        fingerprints=fingerprints,
        now=now,
        ids=ids,
        names=Names(state, taken_variables),
        origins=stack.origins if stack is not None else {},
        elsewhere=_elsewhere(state, live, traits),
        replaced=selection.replaced,
        leftovers=_leftovers(state, moved.sources),
    )
    decisions = list(_decisions(ctx, wanted, moved.sources, goners))
    chosen = [one for one in decisions if selection.has(one.change.server)]
    actions = tuple(_actions(ctx, chosen))
    acted = {action.server for action in actions}
    return with_values(
        base,
        changes=tuple(one.change for one in chosen),
        actions=actions,
        diagnostics=(
            *moved.diagnostics,
            *selection.diagnostics,
            *guards.all_removed(stack, state, options, chosen),
            *guards.many_gone(state, live, options),
            *(finding for one in chosen for finding in one.diagnostics),
            *guards.idle_unset(ctx, chosen),
            *guards.orphans(state, live),
            *guards.in_doubt(state),
            *guards.not_compared(ctx, chosen),
            *guards.left_out(state, selection, decisions),
        ),
        desired={
            one.change.server: one.spec for one in chosen if one.spec is not None and one.change.server in acted
        },
        fingerprints={
            one.change.server: {name: trace for name, trace in fingerprints[one.change.server].items() if trace}
            for one in chosen
            if one.change.server in acted and one.change.server in fingerprints
        },
    )


def _decisions(
    ctx: Context, wanted: Mapping[str, ServerSpec], moved: Mapping[str, str], goners: Iterable[str]
) -> Iterator[Decision]:
    """Declared servers in the file's order, then those that are only recorded, then sandboxes of neither."""
    servers = ctx.state.servers
    if ctx.options.refresh_only:
        yield from (accept(ctx, name, record) for name, record in servers.items())
        return
    for name, spec in wanted.items():
        source = moved.get(name)
        yield decide(ctx, name, spec, servers.get(source or name), source)
    yield from (remove(ctx, name, servers[name]) for name in goners)
    for name in ctx.leftovers:
        if name not in wanted and name not in servers:
            yield left_alone(ctx, name)


def _actions(ctx: Context, chosen: Iterable[Decision]) -> Iterator[Action]:
    first: Action | None = None
    stay = [key for key, _ in ctx.elsewhere.items() if ctx.state.sandboxes[key].instance is None]
    if stay and any(step.verb == "create" for one in chosen for step in one.steps):
        old = ctx.elsewhere[stay[0]]
        summary = f"the recorded sandboxes stay {old.provider}'s"
        first = Action("record-instance", "", "record", "", summary, payloads.stamp(old, stay))
        yield first
    for one in chosen:
        yield from order.chain(one.change.server, one.steps, first)


def _elsewhere(state: State, live: LiveView, traits: Traits) -> dict[str, Instance]:
    """The sandboxes of another provider than the plan's, which a refresh of this one says nothing about."""
    found: dict[str, Instance] = {}
    for key, record in state.sandboxes.items():
        instance = record.instance or state.instance
        if instance is None or instance == live.instance:
            continue
        if instance.provider != traits.provider or (record.instance is not None and live.instance is not None):
            found[key] = instance
    return found


def _leftovers(state: State, moved: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    used = {record.sandbox for record in state.servers.values()}
    if used >= state.sandboxes.keys():
        return {}
    renamed = {old: new for new, old in moved.items()}
    found: dict[str, tuple[str, ...]] = {}
    for key, record in state.sandboxes.items():
        if key not in used:
            server = owner_server(record.owner) or key.split(".")[0]
            server = renamed.get(server, server)
            found[server] = (*found.get(server, ()), key)
    return found


def _recorded(state: State, live: LiveView) -> Iterator[Found]:
    for record in state.sandboxes.values():
        found = live.sandboxes.get(record.id)
        if isinstance(found, Found):
            yield found
