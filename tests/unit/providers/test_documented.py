"""docs/providers.md and docs/guest.md say what is; docs/diagnostics.md has every code of both rooms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcpiac.guest import bridges, setup
from mcpiac.model.outcome import ErrorKind
from mcpiac.providers import registry

ROOT = Path(__file__).parents[3]
DIAGNOSTICS = (ROOT / "docs" / "diagnostics.md").read_text()
PROVIDERS = (ROOT / "docs" / "providers.md").read_text()
GUEST = (ROOT / "docs" / "guest.md").read_text()
RAISED = re.compile(r"""(?:error|Failed|_lacks)\(\s*["']([a-z]+(?:-[a-z]+)+)["']|code=["']([a-z]+(?:-[a-z]+)+)["']""")
NAMED = re.compile(r"""Diagnostic\(\s*["']\w+["'],\s*["']([a-z-]+)["']""")


def codes() -> set[str]:
    texts = [p.read_text() for room in ("guest", "providers") for p in (ROOT / "src/mcpiac" / room).rglob("*.py")]
    found = {code for text in texts for pair in RAISED.findall(text) for code in pair if code}
    return found | {code for text in texts for code in NAMED.findall(text)}


def test_the_pattern_finds_them() -> None:
    assert {"server-exits", "file-edited", "daemon-not-starting", "no-credential", "provider-beta"} <= codes()


@pytest.mark.parametrize("code", sorted(codes()))
def test_each_code_is_documented(code: str) -> None:
    assert f"`{code}`" in DIAGNOSTICS


@pytest.mark.parametrize("name", registry.NAMES)
def test_each_provider_is_documented(name: str) -> None:
    assert f"`{name}`" in PROVIDERS
    assert f"`{registry.traits(name, {}).guest}`" in PROVIDERS


@pytest.mark.parametrize("kind", ErrorKind.__args__)  # type: ignore[attr-defined]
def test_each_kind_is_documented(kind: str) -> None:
    assert f"`{kind}`" in PROVIDERS


@pytest.mark.parametrize(("name", "kind"), bridges.KINDS.items())
def test_each_bridge_is_documented_with_its_version(name: str, kind: bridges.Kind) -> None:
    (row,) = [line for line in GUEST.splitlines() if line.startswith(f"| `{name}` |")]
    assert f"`{kind.version}`" in row
    assert (kind.fixed_path is None) == ("any |" in row.split("|")[5] + "|")


def test_what_is_put_in_is_documented() -> None:
    for path in (f"{setup.FOLDER}/setup.pyz", f"{setup.FOLDER}/SERVER.setup.json", bridges.PROGRAM):
        assert f"`{path}`" in GUEST
