"""One test for each file of tests/cases/stack/good: its effective stack is exactly the one beside it.

Only what differs from the defaults is written in the expected text. ``make golden`` writes the texts anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcpiac.model.codec import digest, plain
from mcpiac.model.spec import ServerSpec, Stack
from mcpiac.stack.compose import compose
from mcpiac.stack.format import format_text
from mcpiac.stack.load import read_stack
from mcpiac.stack.schema import json_schema

CASES = Path(__file__).parents[2] / "cases" / "stack" / "good"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))
DEFAULT = plain(ServerSpec())


def differences(stack: Stack) -> dict[str, Any]:
    servers = {
        name: {key: value for key, value in plain(spec).items() if value != DEFAULT[key]}
        for name, spec in stack.servers.items()
    }
    return {"stack": stack.name, "provider": stack.provider, "servers": servers}


def read(path: Path, root: Path) -> Stack:
    reading = read_stack(path, root)
    assert reading.diagnostics == ()
    assert reading.stack is not None
    return reading.stack


@pytest.mark.parametrize("name", NAMES)
def test_effective_stack(name: str, project: Path) -> None:
    path = project / "stacks" / f"{name}.yaml"
    path.write_bytes((CASES / f"{name}.yaml").read_bytes())
    stack = read(path, project)
    shown = json.dumps(differences(stack), indent=1, ensure_ascii=False) + "\n"
    expected = CASES / f"{name}.json"
    if os.environ.get("MCPIAC_GOLDEN") == "write":
        expected.write_text(shown, encoding="utf-8")
    assert shown == expected.read_text(encoding="utf-8")
    assert stack.file == f"stacks/{name}.yaml"
    assert stack.digest == digest({"stack": stack.name, "provider": stack.provider, "servers": stack.servers})


@pytest.mark.parametrize("name", NAMES)
def test_json_schema_accepts_what_is_accepted(name: str) -> None:
    tree = compose((CASES / f"{name}.yaml").read_bytes().decode("utf-8-sig")).root
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(tree)) == []


@pytest.mark.parametrize("name", NAMES)
def test_fmt_keeps_the_meaning_and_is_done_once(name: str, project: Path) -> None:
    before, after = project / "stacks" / "before.yaml", project / "stacks" / "after.yaml"
    before.write_bytes((CASES / f"{name}.yaml").read_bytes())
    text = format_text(before.read_bytes().decode("utf-8"))
    after.write_text(text, encoding="utf-8", newline="")
    assert read(after, project).digest == read(before, project).digest
    assert format_text(text) == text
    assert "\r" not in text
    assert text.endswith("\n")


def test_origins_are_found_when_asked(project: Path) -> None:
    path = project / "stacks" / "demo.yaml"
    path.write_text(
        "stack: demo\nprovider: local\ndefaults: {idle: 5}\n"
        "servers:\n  a:\n    command: [x]\n    secrets: {T: env:T}\n  b: {command: [y]}\n"
    )
    origins = read(path, project).origins
    assert {key: str(origin) for key, origin in origins.items()} == {
        "a": "stacks/demo.yaml:5:3",
        "a.command": "stacks/demo.yaml:6:5",
        "a.secrets": "stacks/demo.yaml:7:5",
        "b": "stacks/demo.yaml:8:3",
        "b.command": "stacks/demo.yaml:8:7",
    }


def test_warnings_and_notes_do_not_forbid_a_stack(project: Path) -> None:
    path = project / "stacks" / "demo.yaml"
    content = "-----BEGIN PRIVATE KEY-----"
    path.write_text(
        f"stack: demo\nprovider: local\nservers:\n  a:\n    command: [x]\n    tools: warn\n"
        f"    files: {{/tmp/a: {{content: '{content}'}}}}\n"
    )
    reading = read_stack(path, project)
    assert reading.stack is not None
    assert [(d.severity, d.code) for d in reading.diagnostics] == [
        ("note", "later-version"),
        ("warning", "secret-in-file"),
    ]
    assert content not in repr(reading.diagnostics)


def test_a_secret_on_a_command_line_is_a_warning_that_can_be_accepted(project: Path) -> None:
    path = project / "stacks" / "demo.yaml"
    text = (
        "stack: demo\nprovider: local\nservers:\n  a:\n"
        '    command: [sh, "${secret.KEY}"]\n'
        '    args: ["--key=${secret.KEY}${secret.KEY}", "$${secret.KEY}"]\n'
        '    env: {E: "${secret.KEY}"}\n'
        "    secrets: {KEY: env:KEY}\n"
    )
    path.write_text(text)
    found = read_stack(path, project)
    assert found.stack is not None
    assert [(d.severity, d.code, str(d.origin)) for d in found.diagnostics] == [
        ("warning", "secret-on-command-line", "stacks/demo.yaml:5:19"),
        ("warning", "secret-on-command-line", "stacks/demo.yaml:6:12"),
    ]
    assert 'allow_plain: ["args[0]"]' in found.diagnostics[1].hint
    path.write_text(text + '    allow_plain: ["command[1]", "args[0]"]\n')
    assert read(path, project).servers["a"].allow_plain == ("args[0]", "command[1]")
