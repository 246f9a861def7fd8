"""A command imports what it uses: what makes the first second of a user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STACK = """\
stack: demo
provider: local
servers:
  files: {package: "npm:@modelcontextprotocol/server-filesystem", version: 2026.8.31, args: [/tmp]}
"""
REPORT = "import sys; from mcpiac import cli; cli.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
HTTP = ("httpx", "aiohttp", "httpcore")
SCREENS = ("rich", "pygments", "click", "shtab")


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["version"], ("argparse", "dataclasses", "asyncio", "pydantic", "ruamel", *HTTP, *SCREENS)),
        (["schema"], ("asyncio", "deepdiff", "mcpiac.state", "mcpiac.planner", *HTTP, *SCREENS)),
        (
            ["validate"],
            ("asyncio", "deepdiff", "mcpiac.state", "mcpiac.planner", "mcpiac.providers", *HTTP, *SCREENS),
        ),
        (["fmt", "--check"], ("asyncio", "deepdiff", "mcpiac.state", "mcpiac.planner", *HTTP, *SCREENS)),
        (["plan", "--untrusted"], ("mcpiac.executor.run", "mcpiac.probe", "mcpiac.bridge", *HTTP, *SCREENS)),
        (["status"], ("mcpiac.planner", "mcpiac.executor", "mcpiac.probe", "deepdiff", *HTTP, *SCREENS)),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_uses(tmp_path: Path, words: list[str], never: tuple[str, ...]) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "demo.yaml").write_text(STACK)
    environ = os.environ | {"MCPIAC_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *words],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "mcpiac.cli" in loaded
    assert [name for name in never if name in loaded] == []
    assert not (tmp_path / "home").exists(), "no daemon is started for this"
