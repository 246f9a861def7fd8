"""The one table is total, acted out as it says, and shown in the documentation."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from planner_cases import Secrets, empty, plan, stack
from planner_effects import apply

from mcpiac.model.action import Verb
from mcpiac.model.spec import ServerSpec
from mcpiac.model.traits import Traits
from mcpiac.planner import payloads
from mcpiac.planner.fields import EXEC_FIELDS, FIELDS, leads
from mcpiac.planner.order import ORDER
from mcpiac.providers import registry

ROOT = Path(__file__).parents[3]
PLANNING = (ROOT / "docs" / "planning.md").read_text()

EDITS: dict[str, dict[str, Any]] = {
    "package": {"version": "9.9.9"},
    "command": {"command": ["node", "s.js"]},
    "args": {"args": ["other"]},
    "env": {"env": {"A": "1"}},
    "files": {"files": {"/home/user/a": "1"}},
    "secrets": {"secrets": {"OTHER": "env:OTHER"}},
    "size": {"size": "large"},
    "ttl": {"ttl": 60},
    "idle": {"idle": 3},
    "transport": {"transport": "http"},
    "bind": {"bind": "any"},
    "port": {"port": 9000},
    "path": {"path": "/other"},
    "access": {"access": "public"},
    "hosted": {"hosted": False},
    "bridge": {"bridge": {"name": "supergateway"}},
    "egress": {"egress": "all"},
    "mounts": {"mounts": {"/home/user/p": {"host": "p"}}},
    "labels": {"labels": {"a": "b"}},
    "title": {"title": "t"},
    "disabled": {"disabled": True},
    "tools": {"tools": "pin"},
    "secrets_at_rest": {"secrets_at_rest": "memory"},
    "allow_plain": {"allow_plain": ["A"]},
    "build": {"build": {"scripts": True}},
    "lifecycle": {"lifecycle": {"prevent_destroy": True}},
    "timeouts": {"timeouts": {"check": 5}},
}
VERBS = {"power": {"hide", "stop"}, "host": {"host", "hide"}, "replace": set(ORDER)}


def test_the_table_has_every_field_of_a_server_and_no_other() -> None:
    assert tuple(FIELDS) == tuple(field.name for field in fields(ServerSpec))


def test_every_edit_is_tried() -> None:
    assert EDITS.keys() | {"sandbox"} == FIELDS.keys()


@pytest.mark.parametrize("name", EDITS)
def test_a_field_leads_to_what_the_table_says_and_to_nothing_else(name: str) -> None:
    world = empty("local")
    world = apply(world, plan(world, stack({"files": {}}, "local")))
    wanted = stack({"files": EDITS[name]}, "local")
    made = plan(world, wanted, secrets=Secrets({}))
    told = leads(name, world.traits)
    allowed = set().union(*(VERBS.get(lead, {lead}) for lead in told)) | {"check"}
    if name == "secrets":
        allowed.add("exec")  # other names than before: the set-up writes down what the server is passed
    verbs = {action.verb for action in made.actions}
    assert verbs <= allowed
    assert verbs & VERBS.get(told[0], {told[0]}), "the first lead is planned"
    settled = {field for action in made.actions for field in action.payload.get("settles", ())}
    assert name in settled or name == "command"
    assert ("check" in verbs) == (told[0] not in ("record", "power"))


@pytest.mark.parametrize("name", FIELDS)
def test_a_trait_can_ask_for_a_new_sandbox(name: str) -> None:
    traits = Traits("x", "agent", True, True, True, True, replace_on=frozenset({name}))
    assert leads(name, traits) == ("replace",)


def test_every_verb_has_its_place_and_its_payload_told() -> None:
    assert ORDER.keys() == set(get_args(Verb))
    table = PLANNING.split("## Payloads")[1]
    for verb in get_args(Verb):
        assert f"| `{verb}` |" in table
        assert f"\n``{verb}``" in (payloads.__doc__ or "")


def test_the_documentation_shows_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)`(?: \(`version`\))? \| (.+) \| (.+) \|$", _section("Which field"), re.MULTILINE)
    assert [row[0] for row in rows] == list(FIELDS)
    for name, local, cloud in rows:
        assert (name, local) == (name, _cell(name, registry.traits("local")))
        assert (name, cloud) == (name, _cell(name, registry.traits("sandboxer", {"PATH": ""})))


def test_the_documentation_shows_every_code() -> None:
    codes = set()
    for path in (ROOT / "src" / "mcpiac" / "planner").glob("*.py"):
        text = path.read_text()
        codes |= set(re.findall(r'iagnostic\(\s*"(?:error|warning|note)",\s*"([a-z]+(?:-[a-z]+)*)"', text))
        codes |= set(re.findall(r'^\s*(?:return )?"([a-z]+(?:-[a-z]+)+)"', text, re.MULTILINE))
    table = (ROOT / "docs" / "diagnostics.md").read_text().split("## Planning")[1].split("\n## ")[0]
    told = set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
    assert {"move-chain", "other-instance", "changes-wait"} <= codes
    assert told == codes


def test_the_port_is_not_among_what_the_set_up_compares_as_declared() -> None:
    assert "port" not in EXEC_FIELDS


def _section(title: str) -> str:
    return PLANNING.split(f"## {title}")[1].split("\n## ")[0]


def _cell(name: str, traits: Traits) -> str:
    if (name == "mounts" and not traits.mounts) or (name == "egress" and len(traits.egress) == 1):
        return "refused"
    if name == "idle" and not traits.idle_settable:
        return "idle, where `sbx` is on PATH"
    told = leads(name, traits)
    if told == ("power",):
        return "stop, resume"
    if told == ("restart",) and name in traits.in_place:
        return "restart, in place"
    return ", ".join(told)
