"""Projects to measure with: a stack of N servers at the contract server, and the same number of terraform blocks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.server_process import ContractServer

MCPIAC = Path(sys.executable).with_name("mcpiac")

SERVER = """\
  s{number:04d}:
    package: npm:@modelcontextprotocol/server-everything
    version: 2026.8.31
    args: [stdio, --number, "{number}"]
    secrets: {{TOKEN: env:BENCH_TOKEN}}
    env: {{LOG_LEVEL: info}}
    files:
      /home/user/notes.txt: {{content: "server {number}\\n"}}
"""

BLOCK = """\
resource "terraform_data" "s{number:04d}" {{
  input = {{ package = "server-everything", version = "2026.8.31", number = "{number}", level = "info" }}
}}
"""


class Project:
    """A project folder whose provider ``local`` is the contract server."""

    def __init__(self, folder: Path, home: Path, server: ContractServer) -> None:
        self.folder = folder
        self.server = server
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "MCPIAC_HOME": str(home),
            "BENCH_TOKEN": "bench-token-value",
            "NO_COLOR": "1",
        }
        (folder / "stacks").mkdir(parents=True)

    def stack(self, servers: int, name: str = "bench") -> None:
        text = f"stack: {name}\nprovider: local\ndefaults: {{size: small, idle: 15}}\nservers:\n"
        text += "".join(SERVER.format(number=number) for number in range(servers))
        (self.folder / "stacks" / f"{name}.yaml").write_text(text)

    def command(self, *words: str) -> list[str]:
        return [str(MCPIAC), *words]


@contextmanager
def project(folder: Path, **server: object) -> Iterator[Project]:
    """A project beside a contract server of its own."""
    home = folder / "home"
    with ContractServer(socket=home / "run" / "daemon.sock", **server) as running:
        yield Project(folder / "project", home, running)


def terraform(folder: Path, blocks: int) -> Path:
    """A terraform project of as many blocks, without providers of others."""
    folder.mkdir(parents=True)
    (folder / "main.tf").write_text("".join(BLOCK.format(number=number) for number in range(blocks)))
    return folder
