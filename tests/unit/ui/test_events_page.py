"""docs/events.md names every type and every field that is written."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from mcpiac.model.event import Event
from mcpiac.ui import doctor, json_lines, report, status, verify

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")


def test_every_event_has_its_type() -> None:
    assert set(json_lines.TYPES) == {kind.__name__ for kind in get_args(Event)}


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_and_its_fields_are_told(kind: type) -> None:
    name = json_lines.TYPES[kind.__name__]
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    missing = [f.name for f in fields(kind) if f.name not in ("stack", "at") and f"`{f.name}`" not in line]
    assert missing == []


def test_every_type_that_a_command_writes_is_told() -> None:
    written = set()
    for path in (ROOT / "src" / "mcpiac").rglob("*.py"):
        written |= set(
            re.findall(r'(?:json_lines\.|return )encode\(\s*"([a-z-]+)"', path.read_text(encoding="utf-8"))
        )
    assert written
    assert [kind for kind in sorted(written) if f"`{kind}`" not in PAGE] == []


def test_the_fields_of_whole_documents_are_told() -> None:
    golden = json.loads((ROOT / "tests" / "golden" / "ui" / "plan.json").read_text())
    names = set(golden) - {"version", "type"}
    names |= {f.name for f in fields(status.Row)} - {"stack", "server"}
    names |= {f.name for f in fields(doctor.Line)}
    names |= set(report.as_data([], [], 0.0)) | set(verify.data([]))
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []
