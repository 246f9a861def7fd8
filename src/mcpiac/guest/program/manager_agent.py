"""The service manager of a local sandbox: our agent, by its ``mcpiac-service``.

The agent itself replaces ``${secret.NAME}`` when it starts the server, so nothing secret is on any command line.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from .fault import Failed
from .words import for_agent

SERVICE = "/run/mcpiac/bin/mcpiac-service"
ENVIRONMENT = "/run/mcpiac/env"


class Manager:
    def __init__(self, values: dict[str, Any]) -> None:
        self.name = values["server"]
        self.service = values.get("service", SERVICE)
        self.environment = values.get("environment", ENVIRONMENT)
        self.ledger = os.path.join(values["home"], ".mcpiac", f"{self.name}.applied.json")

    def path(self) -> str | None:
        """Where programs are looked for."""
        return os.environ.get("PATH")

    def secrets(self) -> dict[str, str]:
        """The sandbox's environment."""
        try:
            with open(self.environment, encoding="utf-8") as file:
                found: dict[str, str] = json.load(file)
        except FileNotFoundError:
            return {}
        return found

    def as_user(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Do ``work`` as the user who owns the guest's files: it is that user who runs this."""
        return work()

    def load(self) -> dict[str, Any]:
        """What the last run left: ``files`` (path → digest) and ``service`` (digest)."""
        try:
            with open(self.ledger, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def store(self, ledger: dict[str, Any]) -> None:
        temporary = f"{self.ledger}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(ledger, file)
        os.replace(temporary, self.ledger)

    def prepare(self, packages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The provider has mounted them already."""
        for package in packages:
            if not package["entry"]:
                named = f"{package['registry']}:{package['name']} {package['version']}"
                raise Failed("package-missing", f"{named} is not mounted in the sandbox")
        return list(packages)

    def put(self, definition: dict[str, Any]) -> None:
        """Set the service and (re)start it; the agent by itself leaves one alone whose definition is the same."""
        whole = {
            **definition,
            "argv": [for_agent(pieces) for pieces in definition["argv"]],
            "env": {name: for_agent(pieces) for name, pieces in definition["env"].items()},
        }
        if not json.loads(self._call(["set"], json.dumps(whole)))["changed"]:
            self.restart()

    def restart(self) -> None:
        self._call(["restart", self.name])

    def status(self) -> dict[str, Any]:
        """``state`` (``absent``: never set), ``up``, ``over`` (it will not come up by itself), ``pid``, ``restarts``,
        ``last_exit``, ``lines``. A restart passes through ``stopped``."""
        found = json.loads(self._call(["status", "--json"]))["services"].get(self.name) or {"state": "absent"}
        return {
            "state": found["state"],
            "up": found["state"] in ("running", "starting"),
            "over": found["state"] == "failed",
            "pid": found.get("pid"),
            "restarts": found.get("restarts", 0),
            "last_exit": found.get("lastExit"),
            "lines": found.get("lastLines", []),
        }

    def lines(self) -> list[str]:
        """The server's last lines."""
        return [str(line) for line in self.status()["lines"]][-20:]

    def _call(self, arguments: list[str], stdin: str = "") -> str:
        done = subprocess.run([self.service, *arguments], input=stdin, capture_output=True, text=True)
        if done.returncode != 0:
            why = done.stderr.strip() or f"exit status {done.returncode}"
            raise Failed("service-manager", f"mcpiac-service {arguments[0]} failed: {why}")
        return done.stdout
