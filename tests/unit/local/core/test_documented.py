"""docs/local-backend.md names every route, code, size and folder; docs/diagnostics.md every finding of doctor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcpiac.local.api import hosting, inside, packages, sandboxes
from mcpiac.local.driver import SIZES, etc_files

ROOT = Path(__file__).parents[4]
LOCAL = ROOT / "src" / "mcpiac" / "local"
PAGE = (ROOT / "docs" / "local-backend.md").read_text()
DIAGNOSTICS = (ROOT / "docs" / "diagnostics.md").read_text()


def _sources() -> str:
    own = [*LOCAL.glob("*.py"), *(LOCAL / "api").glob("*.py"), *(LOCAL / "agent").glob("*.py")]
    return "\n".join(path.read_text() for path in own)


def _codes() -> set[str]:
    found = set(re.findall(r'Refused\(\s*\d+,\s*"([a-z_]+)"', _sources()))
    found |= set(re.findall(r'FileFault\("([a-z_]+)"', _sources()))
    found |= set(re.findall(r'HostingError\(\s*"([a-z_]+)"', _sources()))
    return found | set(re.findall(r'\{"error": "([a-z_]+)", "message"', (LOCAL / "agent" / "main.py").read_text()))


def test_there_are_codes() -> None:
    assert len(_codes()) > 30


@pytest.mark.parametrize("code", sorted(_codes() - {"not_found", "unknown_op"}))
def test_every_code_is_explained(code: str) -> None:
    assert f"`{code}`" in PAGE


@pytest.mark.parametrize(
    "route",
    [f"{method} {path}" for room in (sandboxes, inside, hosting, packages) for method, path, _ in room.ROUTES],
)
def test_every_route_is_listed(route: str) -> None:
    assert f"`{route}`" in PAGE


def test_no_route_is_listed_that_is_not_there() -> None:
    there = {f"{method} {path}" for room in (sandboxes, inside, hosting, packages) for method, path, _ in room.ROUTES}
    assert set(re.findall(r"`((?:GET|PUT|POST|PATCH|DELETE) /[^`]*)`", PAGE)) == there


def test_sizes_and_their_limits() -> None:
    for name, size in SIZES.items():
        limits = size.limits()
        row = f"| `{name}` | {size.vcpu} vCPU, {size.memory_gb} GB | {limits['DATA'] >> 30} GiB | "
        assert row + f"{limits['FSIZE'] >> 30} GiB | {limits['NPROC']} |" in PAGE


def test_guest_files() -> None:
    for path in etc_files("h"):
        assert f"`{path.removeprefix('/etc/')}`" in PAGE


def test_every_finding_of_doctor() -> None:
    text = (LOCAL / "machine.py").read_text()
    codes = set(re.findall(r'[Ff]inding\(\s*"([a-z0-9-]+)"', text)) | set(
        re.findall(r'\("((?:python|node)-fails)"', text)
    )
    assert len(codes) > 15
    missing = sorted(code for code in codes if f"`{code}`" not in DIAGNOSTICS)
    assert missing == []
