"""``init``: a first project, written around what is there already."""

from __future__ import annotations

import json
import os
from pathlib import Path

from mcpiac.model.diagnostic import error
from mcpiac.stack.project import STACKS
from mcpiac.stack.schema import json_schema

STACK = """\
# yaml-language-server: $schema=../schema/stack.schema.json
stack: demo
provider: local

servers:
  # Reads and writes files in its own sandbox. It sees only its own secret.
  files:
    package: npm:@modelcontextprotocol/server-filesystem
    version: 2026.8.31
    args: [/home/user/project]
    files:
      /home/user/project/notes.txt: {content: "only the files server can read this\\n"}
    secrets: {FILES_SERVER_TOKEN: env:FILES_SERVER_TOKEN}
    ttl: 8h
    idle: 15

  # Shows every feature of MCP; its tool get-env returns all that it can see.
  everything:
    package: npm:@modelcontextprotocol/server-everything
    version: 2026.8.31
    args: [stdio]
    secrets: {EVERYTHING_SERVER_TOKEN: env:EVERYTHING_SERVER_TOKEN}
    ttl: 8h
    idle: 1
"""
STATE_IGNORE = """\
# The state names sandboxes and what was applied; it holds no secret. It belongs to this machine's runs, not to the
# repository: two copies of it would disagree. Teams share it through a backend.
*
!.gitignore
"""
IGNORE = """\
# Secrets stay out of the repository.
.env
*.secret
"""


def schema_text() -> str:
    """The text of ``schema/stack.schema.json``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def init(root: Path) -> list[Path]:
    """Write what a project needs and is not there; the files written. Nothing that exists is touched.

    Raises ``Diagnosed`` where the folder cannot be written.
    """
    written = []
    for path, text in _wanted(root):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if _write_new(path, text):
                written.append(path)
        except OSError as fault:
            reason = os.strerror(fault.errno or 0)
            raise error("not-writable", f"{path} cannot be written: {reason}", hint="choose another folder") from None
    return written


def _wanted(root: Path) -> list[tuple[Path, str]]:
    stacks = root / STACKS
    wanted = [
        (root / "schema" / "stack.schema.json", schema_text()),
        (root / "state" / ".gitignore", STATE_IGNORE),
        (root / ".gitignore", IGNORE),
    ]
    if not (stacks.is_dir() and any(stacks.glob("*.y*ml"))):
        wanted.insert(0, (stacks / "demo.yaml", STACK))
    return wanted


def _write_new(path: Path, text: str) -> bool:
    """Create a file that does not exist, also not as a dangling symlink; False where something is there."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    return True
