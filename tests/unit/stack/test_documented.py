"""Every key, default and code of stack files and secrets is in docs/, and docs/ names no other."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpiac.stack import load, project, rules, schema, source
from mcpiac.stack.compose import DEEPEST, MOST_ALIASED
from mcpiac.stack.keys import Key, Part
from mcpiac.stack.load import read

REPOSITORY = Path(__file__).parents[3]
DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "stack-file.md").read_text(encoding="utf-8")
CODES = (DOCS / "diagnostics.md").read_text(encoding="utf-8")
SECTIONS = {
    "Top": schema.STACK,
    "Server": schema.SERVER,
    "Files": schema.FILE,
    "Bridge": schema.BRIDGE,
    "Build": schema.BUILD,
    "Lifecycle": schema.LIFECYCLE,
    "Timeouts": schema.TIMEOUTS,
}
CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+\Z")


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(page: str, title: str) -> dict[str, list[str]]:
    found = {}
    for line in section(page, title).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for name in re.findall(r"`([^`]+)`", cells[0]) if line.startswith("| `") else []:
            found[name] = cells[1:]
    return found


def default(key: Key) -> str:
    value: Any = key.default if key.written is None else key.written
    if key.required:
        return "required"
    if value is None:
        return "–"
    plain = isinstance(value, str) and value and not value[0].isdigit()
    return f"`{value if plain else json.dumps(value)}`"


@pytest.mark.parametrize("title", SECTIONS)
def test_keys_and_defaults(title: str) -> None:
    part: Part = SECTIONS[title]
    documented = rows(PAGE, title)
    assert set(documented) == set(part.keys)
    assert {name: cells[1] for name, cells in documented.items()} == {n: default(k) for n, k in part.keys.items()}


@pytest.mark.parametrize("title", SECTIONS)
def test_choices(title: str) -> None:
    for name, key in SECTIONS[title].keys.items():
        later = {"egress", "tools", "secrets_at_rest"}
        for word in key.value.json.get("enum", ()) if name not in later else ():
            assert f"`{word}`" in rows(PAGE, title)[name][0]


def test_the_keys_of_a_secret() -> None:
    assert all(f"{name}: " in (DOCS / "secrets.md").read_text() for name in schema.SECRET.keys)


def test_the_example_is_a_stack() -> None:
    text = PAGE.split("```yaml\n", 1)[1].split("```", 1)[0]
    assert read(text, "example.yaml", REPOSITORY).diagnostics == ()


def test_the_limits() -> None:
    for limit in (f"{source.LARGEST:,} bytes", f"{DEEPEST} levels", f"{MOST_ALIASED:,} values"):
        assert limit in PAGE.replace("\n", " ")
    assert f"{load._MOST_REPEATED:,} values" in CODES
    assert f"at most {rules.MOST_VARIABLES - 1}" in (DOCS / "secrets.md").read_text()


def _calls(tree: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.args
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "code":
            values = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            for value in values:
                yield "Finding", [value]


def codes_of(*rooms: Path) -> set[str]:
    """Every code that is given to a finding in these rooms: read from the source, so that none is forgotten."""
    position = {"Finding": 0, "Bad": 0, "_fault": 0, "error": 0, "_unusable": 99, "Diagnostic": 1}
    found = set()
    for path in (p for room in rooms for p in room.glob("*.py")):
        for name, arguments in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            at = position.get(name)
            if at is not None and len(arguments) > at and isinstance(arguments[at], ast.Constant):
                found.add(arguments[at].value)
    return {code for code in found if isinstance(code, str) and CODE.match(code)}


def test_every_code_is_documented_and_no_other() -> None:
    assert project.STACKS == "stacks"
    rooms = REPOSITORY / "src" / "mcpiac"
    documented = {*rows(CODES, "Stack files"), *rows(CODES, "The project"), *rows(CODES, "Secrets")}
    assert codes_of(rooms / "stack", rooms / "secrets") == documented


def test_every_code_of_a_stack_file_has_a_case() -> None:
    """What cannot be a case file (a missing file, one of 5 MB, too many findings) has a test of its own."""
    cases = REPOSITORY / "tests" / "cases" / "stack" / "bad"
    seen = {code for path in cases.glob("*.txt") for code in re.findall(r"\[([a-z0-9-]+)\]", path.read_text())}
    elsewhere = {"file-not-found", "not-a-file", "not-readable", "file-too-large", "from-unreadable", "not-formatted"}
    elsewhere |= {"more-errors", "defaults-too-large", "file-content-too-large", "secret-on-command-line"}
    assert set(rows(CODES, "Stack files")) - seen - elsewhere == set()
