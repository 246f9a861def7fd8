"""Every code of the state and of runs is in docs/diagnostics.md; every field and rule in docs/state.md."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from mcpiac.model.action import Entry
from mcpiac.model.record import SandboxRecord, ServerRecord, State
from mcpiac.state import integrity

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "diagnostics.md").read_text()
STATE = (ROOT / "docs" / "state.md").read_text()
CODE = re.compile(
    r"""["']((?:state|journal|lock|create|action|history|setup|check|not-that)-[a-z]+(?:-[a-z]+)*)["']"""
)


def codes() -> set[str]:
    sources = [*(ROOT / "src/mcpiac/state").rglob("*.py"), *(ROOT / "src/mcpiac/executor").rglob("*.py")]
    return {code for path in sources for code in CODE.findall(path.read_text())}


def test_the_pattern_finds_them() -> None:
    assert {"state-locked", "journal-torn", "create-again", "setup-failed"} <= codes()


@pytest.mark.parametrize("code", sorted(codes()))
def test_each_code_is_documented(code: str) -> None:
    assert f"`{code}`" in PAGE


@pytest.mark.parametrize("record", [State, SandboxRecord, ServerRecord, Entry])
def test_each_field_is_documented(record: type) -> None:
    for one in fields(record):
        assert f"`{one.name}`" in STATE, f"{record.__name__}.{one.name}"


def test_the_rules_are_those_of_the_code() -> None:
    told = re.findall(r"^\d+\. .+$", (integrity.__doc__ or "").replace("``", "`"), re.MULTILINE)
    shown = re.findall(r"^\d+\. .+$", STATE.split("## Integrity rules")[1].split("\n## ")[0], re.MULTILINE)
    assert [line.replace("<", "").replace(">", "").lower() for line in told] == [line.lower() for line in shown]
