"""``init``, the example stack and the JSON Schema that is kept in the repository."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcpiac.model.codec import plain
from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.spec import ServerSpec
from mcpiac.stack.compose import compose
from mcpiac.stack.format import format_text
from mcpiac.stack.load import read_stack
from mcpiac.stack.scaffold import STACK, init, schema_text
from mcpiac.stack.schema import SERVER, json_schema

REPOSITORY = Path(__file__).parents[3]


def test_the_kept_schema_is_the_one_of_the_code() -> None:
    kept = REPOSITORY / "schema" / "stack.schema.json"
    if os.environ.get("MCPIAC_GOLDEN") == "write":
        kept.write_text(schema_text(), encoding="utf-8")
    assert kept.read_text(encoding="utf-8") == schema_text()


def test_the_schema_is_a_schema_and_accepts_the_demo() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    tree = compose((REPOSITORY / "stacks" / "demo.yaml").read_text()).root
    jsonschema.Draft202012Validator(json_schema()).validate(tree)


@pytest.mark.parametrize(
    "change",
    [
        {"stack": "Bad_Name"},
        {"stack": None},
        {"provider": "docker"},
        {"unknown": 1},
        {"servers": {"Bad": {}}},
        {"servers": {"a": {"idel": 5}}},
        {"servers": {"a": {"version": 1.1}}},
        {"servers": {"a": {"secrets": {"T": "a literal"}}}},
        {"servers": {"a": {"env": {"A": 1}}}},
        {"servers": {"a": {"ttl": "long"}}},
        {"servers": {"a": {"port": 80}}},
        {"servers": {"a": {"files": {"/etc/x": {"content": ""}}}}},
        {"defaults": {"package": "npm:a"}},
    ],
)
def test_the_schema_refuses(change: dict[str, Any]) -> None:
    stack = {"stack": "demo", "provider": "local", "servers": {}} | change
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(stack))


def test_every_field_of_a_spec_is_a_key_and_the_defaults_are_those_of_the_spec() -> None:
    spec = plain(ServerSpec())
    assert set(SERVER.keys) == set(spec) | {"version"}
    defaults = SERVER.empty()
    for key in set(spec) - {"egress"}:
        assert plain(defaults[key]) == spec[key], key
    assert (defaults["egress"], spec["egress"]["kind"]) == ("none", "none")


def test_the_demo() -> None:
    path = REPOSITORY / "stacks" / "demo.yaml"
    reading = read_stack(path, REPOSITORY)
    assert reading.diagnostics == ()
    assert reading.stack is not None
    servers = reading.stack.servers
    assert {name: str(server.package) for name, server in servers.items()} == {
        "files": "npm:@modelcontextprotocol/server-filesystem 2026.8.31",
        "everything": "npm:@modelcontextprotocol/server-everything 2026.8.31",
    }
    assert {name: ref.source for server in servers.values() for name, ref in server.secrets.items()} == {
        "FILES_SERVER_TOKEN": "env:FILES_SERVER_TOKEN",
        "EVERYTHING_SERVER_TOKEN": "env:EVERYTHING_SERVER_TOKEN",
    }
    assert format_text(path.read_text()) == path.read_text() == STACK


def test_init_writes_a_project_that_is_valid(tmp_path: Path) -> None:
    root = tmp_path / "new"
    written = init(root)
    assert [str(path.relative_to(root)) for path in written] == [
        "stacks/demo.yaml",
        "schema/stack.schema.json",
        "state/.gitignore",
        ".gitignore",
    ]
    assert read_stack(root / "stacks" / "demo.yaml", root).stack is not None
    assert json.loads((root / "schema" / "stack.schema.json").read_text()) == json_schema()
    assert "*" in (root / "state" / ".gitignore").read_text().splitlines()


def test_init_never_overwrites(tmp_path: Path) -> None:
    init(tmp_path)
    for path in tmp_path.rglob("*.*"):
        if path.is_file():
            path.write_text("mine\n")
    assert init(tmp_path) == []
    assert {path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {"mine\n"}


def test_init_beside_stacks_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "mine.yml").write_text("stack: mine\n")
    (tmp_path / ".gitignore").symlink_to("nowhere")
    assert [path.name for path in init(tmp_path)] == ["stack.schema.json", ".gitignore"]
    assert not (tmp_path / "nowhere").exists()


def test_init_where_nothing_can_be_written(project: Path, as_nobody: Callable[[Callable[[], str]], str]) -> None:
    closed = project / "closed"
    closed.mkdir(mode=0o755)

    def attempt() -> str:
        try:
            return str(len(init(closed / "deep" if os.geteuid() else project / "open")))
        except Diagnosed as fault:
            return fault.diagnostics[0].code

    assert as_nobody(attempt) == "not-writable"
