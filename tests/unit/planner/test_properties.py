"""What holds for every plan, whatever was edited, disturbed or cut in half. Failures print themselves as a case."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from planner_cases import CANARY, TRAITS, Secrets, empty, options, patch_live, patch_records, plan, stack
from planner_effects import World, apply

from mcpiac.model.codec import plain
from mcpiac.model.plan import Plan
from mcpiac.model.spec import Stack
from mcpiac.model.traits import Traits

NAMES = ("a", "b", "c-d", "e")
EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _some(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


WISHES: dict[str, st.SearchStrategy[Any]] = {
    "version": _some(["1.0.0", "1.1.0", "2.0.0"]),
    "args": _some([[], ["x"], ["x", "y"], ["${secret.TOKEN}"]]),
    "command": _some([["python3", "s.py"], ["node", "s.js"]]),
    "env": _some([{}, {"A": "1"}, {"A": "2", "B": "1"}]),
    "files": _some(
        [{}, {"/home/user/a": "1"}, {"/home/user/a": "2", "/tmp/b": "1"}, {"/home/user/k": {"secret": "TOKEN"}}]
    ),
    "secrets": _some([{}, {"TOKEN": "env:TOKEN"}, {"TOKEN": {"from": "file:t", "version": 2}, "OTHER": "env:OTHER"}]),
    "size": _some(["small", "default", "xlarge"]),
    "ttl": _some(["none", 60, 28800]),
    "idle": _some(["off", 1, 15, 10080]),
    "transport": _some(["stdio", "http"]),
    "port": _some([8000, 8001, 9000]),
    "access": _some(["private", "public"]),
    "hosted": st.booleans(),
    "bridge": _some([{"name": "mcpiac"}, {"name": "supergateway"}, {"name": "npm:mcp-proxy", "version": "6.7.19"}]),
    "egress": _some(["none", "all"]),
    "labels": _some([{}, {"team": "a"}, {"team": "b"}]),
    "title": _some(["", "Files"]),
    "disabled": st.booleans(),
    "tools": _some(["pin", "warn", "ignore"]),
    "allow_plain": _some([[], ["A"]]),
    "build": _some([{}, {"scripts": True}]),
    "lifecycle": _some([{}, {"ignore": ["args", "idle"]}, {"on_expiry": "resume"}, {"ignore": ["files", "size"]}]),
    "timeouts": _some([{}, {"check": 5}]),
}
SERVERS = st.dictionaries(_some(list(NAMES)), st.fixed_dictionaries({}, optional=WISHES), max_size=3)
DISTURBED = st.fixed_dictionaries(
    {},
    optional={
        "state": _some(["archived", "paused", "error", "running"]),
        "hosted": _some(
            [{8000: {"access": "public"}}, {7777: {}}, {8000: {"title": "t"}, 9999: {"localhost": False}}]
        ),
        "idle": _some([0, 3, 15]),
        "size": _some(["small", "large"]),
        "expired": st.booleans(),
        "gone": st.just(True),
    },
)
OPTIONS = st.fixed_dictionaries(
    {"allow_gone": st.just(True), "allow_empty": st.just(True)},
    optional={"renew": st.booleans(), "overwrite_files": st.booleans(), "upgrade_guest": st.booleans()},
)
TRAIT = _some(
    [
        TRAITS["local"],
        TRAITS["sandboxer"],
        replace(TRAITS["sandboxer"], idle_settable=True),
        replace(TRAITS["local"], in_place=frozenset({"egress", "secrets"})),
        replace(TRAITS["local"], in_place=frozenset(), replace_on=frozenset({"size"})),
    ]
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, dict[str, Any]]:
    """A fleet that was applied, perhaps with a failure, and then disturbed by others."""
    traits: Traits = draw(TRAIT)
    world = replace(empty(traits.provider), traits=traits)
    servers = _fit(draw(SERVERS), traits)
    first = plan(world, stack(servers, traits.provider), prefix="old")
    fail = draw(st.none() | _some([action.id for action in first.actions])) if first.actions else None
    world = apply(world, first, fail_at=fail)
    adopted = draw(st.none() | _some(sorted(world.state.servers))) if world.state.servers else None
    if adopted is not None:
        key = world.state.servers[adopted].sandbox
        world = patch_records(world, {adopted: {"never_applied": "all"}}, {key: {"secrets": {}, "name": ""}})
    return world, servers


def _fit(servers: dict[str, Any], traits: Traits) -> dict[str, Any]:
    return {
        name: {k: v for k, v in one.items() if k != "egress" or v in traits.egress} for name, one in servers.items()
    }


def _disturb(world: World, patches: dict[str, Any]) -> World:
    known = {}
    for name, patch in patches.items():
        if name in world.state.servers:
            keep = {"gone", "state", "size"} | ({"hosted"} if world.traits.lists_hosted else set())
            keep |= {"idle", "expired"} if world.traits.lists_idle else set()
            known[name] = {k: v for k, v in patch.items() if k in keep}
            if known[name].get("expired"):
                known[name]["state"] = "archived"
            if known[name].get("state") == "paused":
                known[name]["paused_at"] = "2026-11-30T11:00:00+00:00"
    for name in list(known):
        record = world.state.servers[name]
        hosted = known[name].get("hosted")
        if hosted is not None and record.hosted is None:
            known[name].pop("hosted")
    return patch_live(world, known)


def _check(made: Plan, world: World) -> None:
    ids = [action.id for action in made.actions]
    assert len(ids) == len(set(ids))
    seen: set[str] = set()
    for action in made.actions:
        assert set(action.after) <= seen
        seen.add(action.id)
        if action.target is not None:
            assert action.target in {box.id for box in world.state.sandboxes.values()}
    assert CANARY not in json.dumps(plain(made))
    for change in made.changes:
        assert all(field.secret or field.before != field.after for field in change.fields)
        acts = any(action.server == change.server for action in made.actions)
        assert acts == (change.kind not in ("noop", "blocked"))


def _plan(world: World, wanted: Stack | None, opts: dict[str, Any], secrets: Secrets) -> Plan:
    return plan(world, wanted, opts=options(opts), secrets=secrets)


@given(
    worlds(), SERVERS, st.dictionaries(_some(list(NAMES)), DISTURBED), OPTIONS, _some([None, "k1", "k2"]), st.data()
)
@EXAMPLES
def test_a_plan_that_was_carried_out_leaves_nothing_to_plan(
    start: tuple[World, dict[str, Any]],
    edited: dict[str, Any],
    patches: dict[str, Any],
    opts: dict[str, Any],
    key: str | None,
    data: st.DataObject,
) -> None:
    world, before = start
    wanted = stack(
        _fit({**before, **edited} if data.draw(st.booleans()) else edited, world.traits), world.traits.provider
    )
    world = _disturb(world, patches)
    secrets = Secrets(data.draw(_some([{}, {name: {"TOKEN": f"{CANARY}-new"} for name in NAMES}])), key)
    made = _plan(world, wanted, opts, secrets)
    assume(not made.errors)
    _check(made, world)
    if made.actions and data.draw(st.booleans()):
        world = apply(world, made, fail_at=data.draw(_some([action.id for action in made.actions])))
        made = _plan(world, wanted, opts, secrets)
        _check(made, world)
    world = apply(world, made)
    once = {"renew": False, "overwrite_files": False, "upgrade_guest": False}
    assert _plan(world, wanted, {**opts, **once}, secrets).actions == ()
    ended = apply(world, _plan(world, None, {**opts, "destroy": True}, secrets))
    assert ended.state.servers == {}
    assert ended.state.sandboxes == {}


@given(worlds(), st.fixed_dictionaries({}, optional=WISHES), st.data())
@EXAMPLES
def test_a_plan_touches_no_other_server(
    start: tuple[World, dict[str, Any]], edit: dict[str, Any], data: st.DataObject
) -> None:
    world, servers = start
    assume(servers)
    settled = plan(world, stack(servers, world.traits.provider))
    world = apply(world, settled)
    name = data.draw(_some(sorted(servers)))
    edited = _fit({**servers, name: {**servers[name], **edit}, "new": {}}, world.traits)
    made = plan(world, stack(edited, world.traits.provider))
    assert {action.server for action in made.actions} <= {name, "new"}


@given(worlds(), st.fixed_dictionaries({}, optional={k: WISHES[k] for k in ("args", "access", "title")}), st.data())
@EXAMPLES
def test_a_move_keeps_sandbox_url_port_and_variable(
    start: tuple[World, dict[str, Any]], edit: dict[str, Any], data: st.DataObject
) -> None:
    world, servers = start
    world = apply(world, plan(world, stack(servers, world.traits.provider)))
    assume(world.state.servers)
    name = data.draw(_some(sorted(world.state.servers)))
    moved = {k: v for k, v in servers.items() if k != name}
    moved["moved"] = {**servers[name], **edit, "lifecycle": {"moved_from": name}}
    wanted = stack(moved, world.traits.provider)
    old = world.state.servers[name]
    after = apply(world, plan(world, wanted))
    new = after.state.servers["moved"]
    assert name not in after.state.servers
    assert (new.sandbox, new.variable, new.port) == (old.sandbox, old.variable, old.port)
    assert (new.hosted and new.hosted.url) == (old.hosted and old.hosted.url)
    assert after.state.sandboxes[new.sandbox].id == world.state.sandboxes[old.sandbox].id
    assert plan(after, wanted).actions == ()


@given(worlds(), st.dictionaries(_some(list(NAMES)), DISTURBED))
@EXAMPLES
def test_refresh_only_sends_nothing_and_settles(start: tuple[World, dict[str, Any]], patches: dict[str, Any]) -> None:
    world, servers = start
    wanted = stack(servers, world.traits.provider)
    world = _disturb(world, patches)
    opts = {"refresh_only": True, "allow_gone": True}
    made = _plan(world, wanted, opts, Secrets({}))
    assert {action.verb for action in made.actions} <= {"record"}
    after = apply(world, made)
    assert _plan(after, wanted, opts, Secrets({})).actions == ()
    later = _plan(after, wanted, {"allow_gone": True}, Secrets({}))
    assert all(not change.drift or _not_taken(change.fields) for change in later.changes)


def _not_taken(fields: Any) -> bool:
    """Ports that nobody declared, and errors, stay drift: a record has no place for them."""
    return all(f.path.startswith("hosted.") or f.before == "error" for f in fields if f.drift)


@pytest.mark.parametrize("servers", [0, 1, 7])
def test_the_same_values_give_the_same_plan(servers: int) -> None:
    wanted = stack({f"s{i}": {"args": [str(i)]} for i in range(servers)}, "local")
    assert plan(empty("local"), wanted) == plan(empty("local"), wanted)
