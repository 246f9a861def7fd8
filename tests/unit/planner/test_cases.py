"""One test for each file in ``tests/cases/plan``, at each provider that it names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planner_cases import (
    CANARY,
    INSTANCES,
    Secrets,
    empty,
    open_entry,
    options,
    patch_live,
    patch_records,
    plan,
    stack,
)
from planner_effects import World, apply
from ruamel.yaml import YAML

from mcpiac.model.codec import plain
from mcpiac.model.plan import Plan
from mcpiac.model.record import Instance

FOLDER = Path(__file__).parents[2] / "cases" / "plan"
ONCE = {"replace", "renew", "upgrade_guest", "refresh_only", "overwrite_files"}
KEYS = {
    "what",
    "traits",
    "trait",
    "applied",
    "stack",
    "live",
    "records",
    "sandboxes",
    "instance",
    "provider",
    "open",
    "secrets",
    "key",
    "resolved",
    "read",
    "options",
    "taken",
    "fail",
    "changes",
    "actions",
    "after",
    "payloads",
    "summaries",
    "diagnostics",
    "hints",
    "again",
    "variables",
}


def _cases() -> list[Any]:
    yaml = YAML(typ="safe")
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        case = yaml.load(path)
        assert case.keys() <= KEYS, f"{path.name}: {case.keys() - KEYS}"
        assert {"what", "changes", "actions"} <= case.keys(), path.name
        for provider in case.get("traits", ["local"]):
            found.append(pytest.param(case, provider, id=f"{path.stem}-{provider}"))
    return found


def test_there_are_cases_for_every_edit() -> None:
    assert len(list(FOLDER.glob("*.yaml"))) >= 70


@pytest.mark.parametrize(("case", "provider"), _cases())
def test_case(case: dict[str, Any], provider: str) -> None:
    key = case.get("key", "k1")
    world = empty(provider)
    traits = replace(
        world.traits, **{k: frozenset(v) if isinstance(v, list) else v for k, v in case.get("trait", {}).items()}
    )
    world = replace(world, traits=traits)
    applied = stack(case.get("applied", {"files": {}}), provider)
    first = plan(world, applied, prefix="old")
    world = apply(world, first, fail_at=case.get("fail"))
    if "fail" not in case:
        assert plan(world, applied).actions == ()
    world = _disturb(world, case, first)

    wanted = stack(case["stack"], provider) if case.get("stack", True) not in (True, None) else applied
    wanted = None if "stack" in case and case["stack"] is None else wanted
    secrets = Secrets(case.get("secrets", {}), None if key == "none" else key)
    opts = options(case.get("options"))
    taken = frozenset(case.get("taken", ()))
    arguments = {"secrets": secrets, "read": case.get("read", True), "resolved": case.get("resolved", True)}
    made = plan(world, wanted, opts=opts, taken=taken, **arguments)
    assert made == plan(world, wanted, opts=opts, taken=taken, **arguments)
    _well_formed(made)
    _as_expected(made, case)
    if made.errors:
        return
    after = apply(world, made)
    again = case.get("options") or {}
    repeated = plan(
        after, wanted, opts=options({k: v for k, v in again.items() if k not in ONCE}), taken=taken, **arguments
    )
    assert [a.id for a in repeated.actions] == case.get("again", []), "the plan after it"
    for server, variable in case.get("variables", {}).items():
        assert after.state.servers[server].variable == variable


def _disturb(world: World, case: dict[str, Any], first: Plan) -> World:
    world = patch_records(world, case.get("records", {}), case.get("sandboxes", {}))
    world = patch_live(world, case.get("live", {}))
    if "instance" in case:
        world = replace(world, instance=Instance(world.traits.provider, case["instance"]))
    if "provider" in case:
        old = world.state.instance
        assert old is not None
        there = frozenset((old.id, id) for id in world.live)
        fresh = empty(case["provider"])
        world = replace(fresh, state=world.state, elsewhere=there, instance=INSTANCES[case["provider"]])
    creates = {action.server: action.payload for action in first.actions if action.verb == "create"}
    entries = [
        open_entry(number, values, creates.get(values["server"], {}))
        for number, values in enumerate(case.get("open", ()), start=1)
    ]
    if case.get("open") and any(e.action.verb == "create" for e in entries):
        lost = {e.action.server for e in entries if e.action.verb == "create"}
        state = world.state
        servers = {k: v for k, v in state.servers.items() if k not in lost}
        sandboxes = {k: v for k, v in state.sandboxes.items() if k not in lost}
        world = replace(world, live={}, state=replace(state, servers=servers, sandboxes=sandboxes))
    return replace(world, state=replace(world.state, open=tuple(entries)))


def _well_formed(made: Plan) -> None:
    ids = [action.id for action in made.actions]
    assert len(ids) == len(set(ids))
    seen: set[str] = set()
    for action in made.actions:
        assert set(action.after) <= seen, "edges only point back, so there is no cycle"
        seen.add(action.id)
        assert action.summary
    text = json.dumps(plain(made))
    assert CANARY not in text
    for change in made.changes:
        for field in change.fields:
            assert field.secret or field.before != field.after, field
            assert not field.secret or (field.before, field.after) == (None, None)
        acts = any(action.server == change.server for action in made.actions)
        assert acts == (change.kind not in ("noop", "blocked")), change
        assert change.reason or change.kind == "noop", change


def _as_expected(made: Plan, case: dict[str, Any]) -> None:
    got: dict[str, Any] = {}
    for change in made.changes:
        want = case["changes"].get(change.server)
        if isinstance(want, str) or want is None:
            got[change.server] = change.kind
            continue
        whole: dict[str, Any] = {
            "kind": change.kind,
            "reason": change.reason,
            "drift": change.drift,
            "moved_from": change.moved_from,
            "fields": {f.path: "secret" if f.secret else [f.before, f.after] for f in change.fields},
        }
        got[change.server] = {name: whole[name] for name in want}
    assert got == case["changes"]
    assert [action.id for action in made.actions] == case["actions"]
    by_id = {action.id: action for action in made.actions}
    for id, subset in case.get("payloads", {}).items():
        assert {name: by_id[id].payload.get(name, "absent") for name in subset} == subset, id
    for id, after in case.get("after", {}).items():
        assert list(by_id[id].after) == after
    for id, text in case.get("summaries", {}).items():
        assert by_id[id].summary == text
    assert [d.code for d in made.diagnostics] == case.get("diagnostics", [])
    hints = "\n".join(f"{d.summary}\n{d.detail}\n{d.hint}" for d in made.diagnostics)
    for text in case.get("hints", ()):
        assert text in hints
