"""What an action does to the state and to the world, as a pure model: the planner's payload contract, acted out.

It obeys ``mcpiac.planner.payloads`` to the letter and nothing else, so a plan that this model cannot carry out, or
that is not empty when planned again afterwards, breaks the contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcpiac.model.action import Action
from mcpiac.model.codec import recorded_view
from mcpiac.model.live import Found, Gone, HostedPort, Live, LiveView
from mcpiac.model.plan import Plan
from mcpiac.model.record import Fingerprint, HostedRecord, Instance, SandboxRecord, ServerRecord, State
from mcpiac.model.traits import Traits

BRIDGE = {"name": "mcpiac", "version": "bundled"}
AT = "2026-11-30T06:00:00+00:00"


@dataclass(frozen=True)
class World:
    """``elsewhere``: sandboxes of other instances, by instance and id."""

    state: State
    live: Mapping[str, Live]
    instance: Instance
    traits: Traits
    elsewhere: frozenset[tuple[str, str]] = frozenset()
    made: int = 0

    def view(self, *, read: bool = True) -> LiveView:
        return LiveView(self.instance, self.live if read else {}, read=read, seconds=0.01, requests=1)


def apply(world: World, plan: Plan, *, fail_at: str | None = None) -> World:
    """Run all actions in an order that their edges allow; ``fail_at`` fails, and so does what depends on it."""
    done: set[str] = set()
    left = list(plan.actions)
    lost: set[str] = set()
    while left:
        ready = [a for a in left if all(b in done for b in a.after)]
        if not ready:
            break
        action = ready[0]
        left.remove(action)
        if action.id == fail_at:
            lost.add(action.id)
            world = _fail(world, action)
            continue
        world = _run(world, plan, action)
        done.add(action.id)
    assert fail_at is not None or not left, f"never ready: {[a.id for a in left]}"
    return world


def _fail(world: World, action: Action) -> World:
    if action.verb in ("exec", "check"):
        record = world.state.servers[action.server]
        return _server(world, action.server, replace(record, tainted="it exited with 1"))
    return world


def _server(world: World, name: str, record: ServerRecord | None) -> World:
    servers = {k: v for k, v in world.state.servers.items() if k != name or record is not None}
    if record is not None:
        servers[name] = record
    return replace(world, state=replace(world.state, servers=servers))


def _sandbox(world: World, key: str, record: SandboxRecord | None) -> World:
    sandboxes = {k: v for k, v in world.state.sandboxes.items() if k != key or record is not None}
    if record is not None:
        sandboxes[key] = record
    return replace(world, state=replace(world.state, sandboxes=sandboxes))


def _live(world: World, id: str, **values: Any) -> World:
    found = world.live[id]
    assert isinstance(found, Found), f"{id} does not exist"
    return replace(world, live={**world.live, id: replace(found, **values)})


def _prints(payload: Mapping[str, Any]) -> dict[str, Fingerprint]:
    return {name: Fingerprint(**trace) for name, trace in payload["fingerprints"].items()}


def _settle(world: World, plan: Plan, action: Action, *, fresh: bool = False) -> World:
    fields = action.payload.get("settles", [])
    record = world.state.servers.get(action.server)
    if record is None or action.sandbox != record.sandbox:
        assert not fields, f"{action.id} settles fields of a record that is not its own"
        return world
    inputs = {**record.inputs, **({action.verb: action.payload["digest"]} if "digest" in action.payload else {})}
    view = recorded_view(plan.desired[action.server]) if fields else {}
    return _server(
        world,
        action.server,
        replace(record, spec={**record.spec, **{name: view[name] for name in fields}}, inputs=inputs),
    )


def _run(world: World, plan: Plan, action: Action) -> World:
    payload = action.payload
    if action.verb == "record":
        return _record(world, plan, action)
    if "instance" in payload:
        return _foreign(world, action)
    if action.verb == "create":
        return _create(world, plan, action)
    id = world.state.sandboxes[action.sandbox].id
    if action.target is not None:
        assert action.target == id, f"{action.id} targets {action.target}, the record says {id}"
    record = world.state.sandboxes[action.sandbox]
    match action.verb:
        case "rename":
            world = _sandbox(
                _live(world, id, name=payload["name"]), action.sandbox, replace(record, name=payload["name"])
            )
        case "exec":
            world = _exec(world, plan, action, id)
        case "host":
            world = _host(world, action, id)
        case "hide":
            world = _hide(world, action, id)
        case "idle":
            assert world.traits.idle_settable
            minutes = payload["idle"] or 0
            world = _live(world, id, idle=minutes if world.traits.lists_idle else None)
            world = _sandbox(world, action.sandbox, replace(record, idle=payload["idle"]))
        case "ttl":
            world = _sandbox(world, action.sandbox, replace(record, ttl=payload["ttl"]))
        case "resume" | "restart":
            world = _power(world, action, id, record)
        case "stop":
            world = _live(world, id, state="archived", paused_at=None)
            world = _sandbox(world, action.sandbox, replace(record, stopped=True))
        case "delete":
            world = replace(world, live={**world.live, id: Gone(id)})
            world = _sandbox(world, action.sandbox, None)
            if payload["forget"]:
                world = _server(world, action.server, None)
        case "check":
            found = world.live[id]
            assert isinstance(found, Found)
            assert found.state in ("running", "paused"), f"{action.id} asks a sandbox that is {found.state}"
            world = _live(world, id, state="running", paused_at=None)
            if payload["hosted"]:
                assert found.hosted is None or payload["port"] in found.hosted, f"{action.id}: port is not hosted"
            world = _server(world, action.server, replace(world.state.servers[action.server], tainted=None))
        case _:
            raise AssertionError(action.verb)
    return _settle(world, plan, action) if action.verb != "delete" else world


def _record(world: World, plan: Plan, action: Action) -> World:
    payload = action.payload
    match payload["what"]:
        case "settle":
            return _settle(world, plan, action)
        case "move":
            record = world.state.servers[payload["from"]]
            world = _server(_server(world, payload["from"], None), action.server, record)
            if record.sandbox in world.state.sandboxes:
                old = world.state.sandboxes[record.sandbox]
                world = _sandbox(world, record.sandbox, replace(old, secrets=_prints(payload)))
            return world
        case "forget":
            return _server(_sandbox(world, action.sandbox, None), action.server, None)
        case "accept":
            record, old = world.state.servers[action.server], world.state.sandboxes[action.sandbox]
            values = {name: payload[name] for name in ("idle", "size", "stopped") if name in payload}
            world = _sandbox(world, action.sandbox, replace(old, **values))
            if "hosted" in payload:
                hosted = None if payload["hosted"] is None else HostedRecord(**payload["hosted"])
                world = _server(world, action.server, replace(record, hosted=hosted))
            return world
        case "instance":
            instance = Instance(**payload["instance"])
            for key in payload["sandboxes"]:
                world = _sandbox(world, key, replace(world.state.sandboxes[key], instance=instance))
            return world
    raise AssertionError(payload["what"])


def _create(world: World, plan: Plan, action: Action) -> World:
    payload, key = action.payload, action.key
    assert key is not None
    assert payload["owner"] == f"{world.state.lineage}/{action.server}/{key}"
    for record in world.state.sandboxes.values():
        if record.instance is None and world.state.instance is not None:
            assert world.state.instance == world.instance, "old sandboxes would be read as the new instance's"
    id = f"sbx_{world.made + 1}"
    found = Found(
        id,
        "",
        "running",
        created_at=AT,
        owner=payload["owner"] if world.traits.lists_owner else None,
        size=payload["size"],
        idle=15 if world.traits.lists_idle else None,
        hosted={} if world.traits.lists_hosted else None,
    )
    world = replace(world, live={**world.live, id: found}, made=world.made + 1)
    world = replace(world, state=replace(world.state, instance=world.instance))
    world = _sandbox(
        world,
        action.sandbox,
        SandboxRecord(
            id,
            key,
            payload["owner"],
            AT,
            size=payload["size"],
            ttl=payload["ttl"],
            egress=payload["egress"],
            secrets=_prints(payload),
        ),
    )
    world = _server(world, action.server, ServerRecord(action.sandbox, {}, payload["variable"], payload["port"]))
    return _settle(world, plan, action)


def _foreign(world: World, action: Action) -> World:
    payload = action.payload
    assert payload["instance"]["id"] != world.instance.id
    assert (payload["instance"]["id"], action.target) in world.elsewhere
    if action.verb == "delete":
        gone = (payload["instance"]["id"], str(action.target))
        world = _sandbox(replace(world, elsewhere=world.elsewhere - {gone}), action.sandbox, None)
        if payload["forget"]:
            world = _server(world, action.server, None)
    else:
        assert action.verb == "hide"
    return world


def _exec(world: World, plan: Plan, action: Action, id: str) -> World:
    payload, spec = action.payload, plan.desired[action.server]
    found = world.live[id]
    assert isinstance(found, Found)
    assert found.state in ("running", "paused"), f"{action.id} runs in a sandbox that is {found.state}"
    assert payload["write"].keys() <= spec.files.keys()
    world = _live(world, id, state="running", paused_at=None)
    bridge = payload["bridge"]
    resolved = None if bridge is None else {k: bridge[k] or BRIDGE[k] for k in BRIDGE}
    view = recorded_view(spec)
    record = world.state.servers[action.server]
    return _server(
        world,
        action.server,
        replace(
            record,
            port=payload["port"],
            files={p: f["sha256"] for p, f in view["files"].items() if "sha256" in f},
            setup={"bridge": resolved, "version": payload["setup"] or "1"},
            tainted=None,
        ),
    )


def _ports(found: Live) -> dict[int, HostedPort]:
    assert isinstance(found, Found)
    return dict(found.hosted or {})


def _host(world: World, action: Action, id: str) -> World:
    payload = action.payload
    url = f"http://127.0.0.1:1{payload['port']}/"
    port = HostedPort(payload["port"], url, payload["access"], payload["localhost"], payload["title"])
    if world.traits.lists_hosted:
        world = _live(world, id, hosted={**_ports(world.live[id]), port.port: port})
    hosted = HostedRecord(port.port, url, port.access, port.localhost, port.title)
    return _server(world, action.server, replace(world.state.servers[action.server], hosted=hosted))


def _hide(world: World, action: Action, id: str) -> World:
    number = action.payload["port"]
    if world.traits.lists_hosted:
        ports = {k: v for k, v in _ports(world.live[id]).items() if k != number}
        world = _live(world, id, hosted=ports)
    record = world.state.servers.get(action.server)
    if (
        record is not None
        and record.sandbox == action.sandbox
        and record.hosted is not None
        and record.hosted.port == number
    ):
        world = _server(world, action.server, replace(record, hosted=None))
    return world


def _power(world: World, action: Action, id: str, record: SandboxRecord) -> World:
    payload = action.payload
    if action.verb == "restart" and payload["in_place"]:
        assert set(payload["changed"]) <= world.traits.in_place
        secrets = _prints(payload) if "secrets" in payload["changed"] else record.secrets
        return _sandbox(world, action.sandbox, replace(record, egress=payload["egress"], secrets=secrets))
    if action.verb == "restart":
        found = world.live[id]
        assert isinstance(found, Found)
        assert found.state in ("running", "paused")
    world = _live(
        world, id, state="running", paused_at=None, expired=False, expires_at=None, size=payload["size"], error=None
    )
    return _sandbox(
        world,
        action.sandbox,
        replace(
            record,
            size=payload["size"],
            ttl=payload["ttl"],
            egress=payload["egress"],
            secrets=_prints(payload),
            owner=payload["owner"],
            stopped=False,
        ),
    )
