"""A project of its own in a temporary folder, driven by the installed command: what the end-to-end tests stand on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).parent / "mcpiac")
SERVERS = Path(__file__).parents[1] / "servers"
COLUMNS = {"COLUMNS": "80", "NO_COLOR": "1"}


@dataclass
class Fleet:
    """One project folder and the environment of its user. ``home`` is the daemon's folder ($MCPIAC_HOME)."""

    root: Path
    home: Path
    secrets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.root / "stacks").mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MCPIAC_", "SANDBOXER_"))}
        kept.update(COLUMNS)
        kept["MCPIAC_HOME"] = str(self.home)
        kept["XDG_CONFIG_HOME"] = str(self.root / "config")
        return kept | self.secrets

    def write(self, text: str, name: str = "demo") -> Path:
        """Replace a stack file."""
        path = self.root / "stacks" / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def script(self, name: str) -> str:
        """The text of one of the test servers, indented as a YAML block scalar needs it under ``content: |``."""
        lines = (SERVERS / name).read_text(encoding="utf-8").splitlines()
        return "\n".join(" " * 10 + line for line in lines)

    def run(
        self, *words: str, ok: bool | None = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command. ``ok`` True: exit 0 is asserted; False: anything but 0; None: not looked at."""
        done = subprocess.run(
            [COMMAND, *words],
            cwd=self.root,
            env=self.environment | dict(env or {}),
            text=True,
            capture_output=True,
            timeout=240,
            stdin=subprocess.DEVNULL,
        )
        told = f"$ mcpiac {' '.join(words)}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
        if ok is not None:
            assert (done.returncode == 0) is ok, told
        for name, value in self.secrets.items():
            assert value not in done.stdout + done.stderr or "--show-tokens" in words, f"{name} was printed\n{told}"
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def output(self) -> dict[str, Any]:
        """Server name → what ``output --json --show-tokens`` tells of it."""
        told = json.loads(self.run("output", "--json", "--show-tokens").stdout)
        return {address.split("/")[1]: server for address, server in told["servers"].items()}

    def close(self) -> None:
        """Destroy what is left and end the daemon."""
        if (self.root / "state").is_dir():
            self.run("destroy", "-y", ok=None)
        self.run("daemon", "stop", ok=None)
        shutil.rmtree(self.root, ignore_errors=True)
