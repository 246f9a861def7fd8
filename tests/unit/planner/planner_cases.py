"""Cases as data → the values that the planner takes. ``tests/cases/plan/README.md`` says what a file may hold."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from planner_effects import World

from mcpiac.model.action import Action, Entry
from mcpiac.model.codec import digest, recorded_view
from mcpiac.model.live import Found, Gone, HostedPort, Unreadable
from mcpiac.model.plan import Plan, PlanOptions
from mcpiac.model.record import Fingerprint, Instance, State
from mcpiac.model.spec import (
    Bridge,
    Build,
    Egress,
    EgressRule,
    FileSpec,
    Lifecycle,
    Mount,
    Package,
    SecretRef,
    ServerSpec,
    Stack,
    Timeouts,
)
from mcpiac.model.traits import Traits
from mcpiac.planner import plan as make_plan
from mcpiac.planner.fields import FIELDS

LINEAGE = "3fa9c1d2e4b5"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
CANARY = "c4n4ry"

TRAITS = {
    "local": Traits(
        "local",
        guest="agent",
        package_store=True,
        lists_hosted=True,
        lists_idle=True,
        lists_owner=True,
        in_place=frozenset({"egress"}),
        egress=frozenset({"none", "list", "all"}),
        mounts=True,
        loopback_only_network=True,
    ),
    "sandboxer": Traits(
        "sandboxer",
        guest="systemd",
        package_store=False,
        lists_hosted=False,
        lists_idle=False,
        lists_owner=False,
        idle_settable=False,
        egress=frozenset({"none", "all"}),
    ),
}
INSTANCES = {
    "local": Instance("local", "lcl-1"),
    "sandboxer": Instance("sandboxer", "https://sandboxer.com/api/v1 acme"),
}
BASE: Mapping[str, Any] = {
    "package": "npm:@m/server-files",
    "version": "1.0.0",
    "args": ["/home/user/project"],
    "secrets": {"TOKEN": "env:TOKEN"},
}


def spec(wish: Mapping[str, Any] | None) -> ServerSpec:
    """A server in the stack file's own words, over ``BASE``. A key that is null is dropped from ``BASE``."""
    keys = {key: value for key, value in {**BASE, **(wish or {})}.items() if value is not None}
    if "command" in keys:
        keys = {key: value for key, value in keys.items() if key not in ("package", "version")}
    values: dict[str, Any] = {}
    for key, value in keys.items():
        match key:
            case "version":
                continue
            case "package":
                registry, _, name = value.partition(":")
                values[key] = Package(registry, name, keys["version"])
            case "args" | "command" | "allow_plain":
                values[key] = tuple(value)
            case "files":
                values[key] = {path: _file(file) for path, file in value.items()}
            case "secrets":
                values[key] = {
                    name: SecretRef(ref) if isinstance(ref, str) else SecretRef(ref["from"], ref.get("version"))
                    for name, ref in value.items()
                }
            case "idle":
                values[key] = None if value == "off" else value
            case "ttl":
                values[key] = None if value == "none" else value
            case "bridge":
                values[key] = Bridge(**value)
            case "egress":
                values[key] = _egress(value)
            case "mounts":
                values[key] = {path: Mount(**mount) for path, mount in value.items()}
            case "build":
                values[key] = Build(value.get("scripts", False), tuple(value.get("hosts", ())))
            case "lifecycle":
                values[key] = Lifecycle(**{**value, "ignore": tuple(value.get("ignore", ()))})
            case "timeouts":
                values[key] = Timeouts(**value)
            case _:
                values[key] = value
    return ServerSpec(**values)


def _file(value: Any) -> FileSpec:
    return FileSpec(content=value) if isinstance(value, str) else FileSpec(**value)


def _egress(value: Any) -> Egress:
    if isinstance(value, str):
        return Egress(value)
    rules = []
    for text in value:
        host, _, port = text.partition(":")
        rules.append(EgressRule(host, (int(port),) if port else ()))
    return Egress("list", tuple(rules))


def stack(servers: Mapping[str, Any], provider: str) -> Stack:
    specs = {name: wish if isinstance(wish, ServerSpec) else spec(wish) for name, wish in servers.items()}
    views = {name: recorded_view(one) for name, one in specs.items()}
    return Stack("demo", provider, specs, "stacks/demo.yaml", digest(views))


class Secrets:
    """What the sources have now: server → NAME → value; None is unset. ``key`` None: no key to make traces with."""

    def __init__(self, values: Mapping[str, Mapping[str, str | None]], key: str | None = "k1") -> None:
        self.values = values
        self.key = key

    def traces(self, wanted: Stack | None) -> dict[str, dict[str, Fingerprint | None]]:
        result: dict[str, dict[str, Fingerprint | None]] = {}
        for name, one in (wanted.servers if wanted is not None else {}).items():
            for address in filter(None, (name, one.lifecycle.moved_from)):
                result[address] = self._of(address, name, one)
        return result

    def _of(self, address: str, server: str, one: ServerSpec) -> dict[str, Fingerprint | None]:
        found: dict[str, Fingerprint | None] = {}
        for name, ref in one.secrets.items():
            value = self.values.get(server, {}).get(name, f"{CANARY}-{name}")
            if value is None:
                found[name] = None
            elif self.key is not None:
                mac = hashlib.sha256(f"{self.key}/{LINEAGE}/demo/{address}/{name}/{value}".encode()).hexdigest()
                found[name] = Fingerprint(self.key, mac, ref.version)
        return found


def options(values: Mapping[str, Any] | None) -> PlanOptions:
    lists = ("replace", "target", "exclude")
    return PlanOptions(**{k: tuple(v) if k in lists else v for k, v in (values or {}).items()})


def counter(prefix: str) -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers)}"


def empty(provider: str) -> World:
    return World(State("demo", LINEAGE), {}, INSTANCES[provider], TRAITS[provider])


def plan(
    world: World,
    wanted: Stack | None,
    *,
    opts: PlanOptions | None = None,
    secrets: Secrets | None = None,
    read: bool = True,
    resolved: bool = True,
    prefix: str = "id",
    taken: frozenset[str] = frozenset(),
) -> Plan:
    secrets = secrets or Secrets({})
    return make_plan(
        wanted,
        world.state,
        world.view(read=read),
        world.traits,
        options=opts or PlanOptions(),
        fingerprints=secrets.traces(wanted) if resolved else {},
        now=NOW,
        ids=counter(prefix),
        taken_variables=taken,
    )


def patch_live(world: World, patches: Mapping[str, Any]) -> World:
    """Somebody else changed it: by server name, or by a sandbox id that is not recorded."""
    live = dict(world.live)
    for name, patch in patches.items():
        record = world.state.servers.get(name)
        id = world.state.sandboxes[record.sandbox].id if record is not None else name
        values = dict(patch)
        if values.pop("gone", False):
            live[id] = Gone(id)
            continue
        if values.pop("unlisted", False):
            del live[id]
            continue
        if "unreadable" in values:
            live[id] = Unreadable(id, values["unreadable"])
            continue
        found = live.get(id, Found(id, "", "running"))
        assert isinstance(found, Found)
        if values.get("hosted") is not None:
            ports = dict(found.hosted or {})
            for port, change in values.pop("hosted").items():
                if change is None:
                    del ports[port]
                else:
                    old = ports.get(port, HostedPort(port, f"http://127.0.0.1:1{port}/", "private", True))
                    ports[port] = replace(old, **change)
            values["hosted"] = ports
        live[id] = replace(found, **values)
    return replace(world, live=live)


def patch_records(world: World, servers: Mapping[str, Any], sandboxes: Mapping[str, Any]) -> World:
    """The record says otherwise (what an older run left)."""
    state = world.state
    records = dict(state.servers)
    for name, values in servers.items():
        patch = dict(values)
        missing = patch.pop("never_applied", [])
        missing = FIELDS if missing == "all" else missing
        kept = {field: value for field, value in records[name].spec.items() if field not in missing}
        records[name] = replace(records[name], **{"spec": {**kept, **patch.pop("spec", {})}, **patch})
    boxes = dict(state.sandboxes)
    for key, values in sandboxes.items():
        copied = dict(values)
        base = boxes[copied.pop("like")] if "like" in copied else boxes[key]
        boxes[key] = replace(base, **copied)
    return replace(world, state=replace(state, servers=records, sandboxes=boxes))


def open_entry(number: int, values: Mapping[str, Any], payload: Mapping[str, Any]) -> Entry:
    action = Action(
        f"{values['server']}.{values['verb']}",
        values["server"],
        values["verb"],
        values.get("sandbox", values["server"]),
        payload={**payload, **values.get("payload", {})},
        key=values.get("key"),
    )
    return Entry(number, action, values["began_at"], found=values.get("found"))
