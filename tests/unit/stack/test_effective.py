"""Properties of reading: absent, null, {} and the default are one; defaults merge; layout means nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpiac.model.spec import Build, ServerSpec, Stack
from mcpiac.stack.compose import compose
from mcpiac.stack.format import format_text
from mcpiac.stack.load import Reading, read
from mcpiac.stack.schema import json_schema

settings.register_profile("stack", deadline=None, print_blob=True)
settings.load_profile("stack")

ROOT = Path("/nonexistent")
DEFAULTS: dict[str, Any] = {
    "args": [],
    "env": {},
    "files": {},
    "size": "small",
    "ttl": "none",
    "idle": 15,
    "transport": "stdio",
    "bind": "loopback",
    "path": "/mcp",
    "access": "private",
    "hosted": True,
    "bridge": {},
    "egress": "none",
    "mounts": {},
    "labels": {},
    "title": "",
    "disabled": False,
    "tools": "ignore",
    "secrets_at_rest": "disk",
    "allow_plain": [],
    "build": {"scripts": False, "hosts": []},
    "lifecycle": {"prevent_destroy": False, "ignore": [], "on_expiry": "leave"},
    "timeouts": {"create": 300, "setup": "10m", "check": "60s"},
    "secrets": {},
}
EMPTY: dict[str, list[Any]] = {
    key: [None, value, *([{}] if isinstance(value, dict) else [])]
    for key, value in DEFAULTS.items()
    if key != "tools"
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "args": st.lists(
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="$"), max_size=5), max_size=3
    ),
    "env": st.dictionaries(st.sampled_from(["LEVEL", "MODE", "B_1"]), st.sampled_from(["", "a", "NO", "8080"])),
    "size": st.sampled_from(["small", "default", "large", "xlarge"]),
    "ttl": st.one_of(st.integers(60, 31536000), st.sampled_from(["none", "90s", "30m", "8h", "2d"])),
    "idle": st.one_of(st.integers(1, 10080), st.just("off")),
    "transport": st.sampled_from(["stdio", "http"]),
    "bind": st.sampled_from(["loopback", "any"]),
    "port": st.integers(1024, 65535),
    "path": st.sampled_from(["/", "/mcp", "/a/b/"]),
    "access": st.sampled_from(["private", "public"]),
    "hosted": st.booleans(),
    "labels": st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from(["a", "b", ""])),
    "title": st.text(st.characters(codec="utf-8", categories=["L", "N", "Zs"]), max_size=20),
    "disabled": st.booleans(),
    "timeouts": st.fixed_dictionaries({}, optional={"create": st.integers(1, 86400), "setup": st.just("5m")}),
    "build": st.fixed_dictionaries({}, optional={"scripts": st.booleans()}),
    "lifecycle": st.fixed_dictionaries(
        {}, optional={"prevent_destroy": st.booleans(), "ignore": st.lists(st.sampled_from(["args", "env"]))}
    ),
    "files": st.dictionaries(
        st.sampled_from(["/tmp/a", "/home/user/b"]),
        st.fixed_dictionaries({"content": st.sampled_from(["", "x\n", "é"])}),
    ),
    "secrets": st.dictionaries(
        st.sampled_from(["TOKEN", "KEY"]), st.sampled_from(["env:T", "file:./t", {"from": "env:A"}])
    ),
}
SERVER = st.fixed_dictionaries({}, optional=VALUES)
COMMON = st.fixed_dictionaries({}, optional={key: value for key, value in VALUES.items() if key != "secrets"})


def stack_of(*servers: dict[str, Any], defaults: Any = None) -> str:
    """A stack as JSON, which is YAML."""
    named = {f"s{index}": {"command": ["x"], **server} for index, server in enumerate(servers)}
    return json.dumps(
        {"stack": "demo", "provider": "local", "defaults": defaults, "servers": named}, ensure_ascii=False
    )


def good(text: str) -> Stack:
    reading: Reading = read(text, "stack.yaml", ROOT)
    assert [d for d in reading.diagnostics if d.severity == "error"] == []
    assert reading.stack is not None
    return reading.stack


def spec(server: dict[str, Any], defaults: Any = None) -> ServerSpec:
    return good(stack_of(server, defaults=defaults)).servers["s0"]


@given(SERVER, st.fixed_dictionaries({}, optional={key: st.sampled_from(value) for key, value in EMPTY.items()}))
def test_absent_null_empty_and_default_are_the_same(server: dict[str, Any], nothing: dict[str, Any]) -> None:
    assert spec({**nothing, **server}) == spec(server)
    assert good(stack_of({**nothing, **server})).digest == good(stack_of(server)).digest


@given(COMMON, SERVER)
def test_defaults_are_as_if_written_in_the_server(defaults: dict[str, Any], server: dict[str, Any]) -> None:
    written = dict(defaults)
    for key, value in server.items():
        both = isinstance(value, dict) and isinstance(written.get(key), dict)
        written[key] = {**written[key], **value} if both else value
    assert spec(server, defaults) == spec(written)


def test_a_server_without_scripts_needs_no_hosts_of_the_defaults() -> None:
    defaults = {"build": {"scripts": True, "hosts": ["b.example", "a.example:443", "a.example"]}}
    assert spec({}, defaults).build == Build(True, ("a.example", "b.example"))
    assert spec({"build": {"hosts": ["c.example:8443"]}}, defaults).build == Build(True, ("c.example:8443",))
    assert spec({"build": {"scripts": False}}, defaults).build == Build()
    assert spec({"build": {"hosts": []}}, defaults).build == Build(True)


@given(COMMON)
def test_null_in_a_server_drops_what_the_defaults_give(defaults: dict[str, Any]) -> None:
    assert spec(dict.fromkeys(defaults), defaults) == spec({})


@given(st.lists(SERVER, max_size=4), COMMON)
def test_servers_are_read_on_their_own(servers: list[dict[str, Any]], defaults: dict[str, Any]) -> None:
    stack = good(stack_of(*servers, defaults=defaults))
    assert list(stack.servers.values()) == [spec(server, defaults) for server in servers]


@given(SERVER, COMMON)
def test_the_order_of_keys_does_not_count(server: dict[str, Any], defaults: dict[str, Any]) -> None:
    turned = dict(reversed(server.items()))
    assert good(stack_of(server, defaults=defaults)).digest == good(stack_of(turned, defaults=defaults)).digest


@given(SERVER, COMMON)
def test_json_schema_accepts_it_and_fmt_keeps_it(server: dict[str, Any], defaults: dict[str, Any]) -> None:
    text = stack_of(server, defaults=defaults)
    jsonschema.Draft202012Validator(json_schema()).validate(compose(text).root)
    laid_out = format_text(text)
    assert good(laid_out).digest == good(text).digest
    assert format_text(laid_out) == laid_out


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_a_reading(text: str) -> None:
    """No input makes the reader raise, and what is wrong is always said."""
    reading = read(text, "stack.yaml", ROOT)
    assert (reading.stack is None) == any(d.severity == "error" for d in reading.diagnostics)


@given(st.data())
def test_any_damage_to_a_stack_is_a_reading(data: st.DataObject) -> None:
    text = (Path(__file__).parents[2] / "cases" / "stack" / "good" / "every-key.yaml").read_text()
    at = data.draw(st.integers(0, len(text)))
    to = data.draw(st.integers(at, min(len(text), at + 20)))
    put = data.draw(st.text(st.sampled_from(" \t\n:-{}[],&*!|>'\"%@`#?~<é1a\x00\x85"), max_size=4))
    reading = read(text[:at] + put + text[to:], "stack.yaml", ROOT)
    assert (reading.stack is None) == any(d.severity == "error" for d in reading.diagnostics)


@given(st.text(st.sampled_from("abcXYZ0189-_"), min_size=4, max_size=30))
def test_a_literal_under_secrets_is_never_shown(value: str) -> None:
    marked = f"canary{value}"
    for written in (marked, f'"{marked}"', f"{{from: {marked}}}", f"[{marked}]", f"{{value: {marked}}}"):
        for layout in (f"{{T: {written}}}", f"\n      T: {written}", f"\n      T: {written}\n      U: {{"):
            head = "stack: demo\nprovider: local\nservers:\n  a:\n    command: [x]\n    idel: 5\n"
            reading = read(f"{head}    secrets: {layout}\n", "stack.yaml", ROOT)
            assert reading.stack is None
            assert marked not in repr(reading)
