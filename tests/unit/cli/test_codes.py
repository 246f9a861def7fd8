"""Every code that the command line gives is in docs/diagnostics.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from mcpiac.model.outcome import ErrorKind

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
CODE = re.compile(r'(?:error\(|Diagnostic\(\s*"(?:error|warning|note)",|code=|Line\()\s*"([a-z0-9-]+)"', re.MULTILINE)


def codes() -> set[str]:
    found = {f"provider-{kind.replace('_', '-')}" for kind in get_args(ErrorKind)}
    for room in ("commands", "ui", "probe", "clients"):
        for path in (ROOT / "src" / "mcpiac" / room).glob("*.py"):
            found |= set(CODE.findall(path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("code", sorted(codes()))
def test_the_code_is_documented(code: str) -> None:
    assert f"`{code}`" in PAGE
