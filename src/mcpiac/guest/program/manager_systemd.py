"""The service manager of a virtual machine: systemd. This runs as root there, the server as ``user``.

What the server's user could change is not trusted: programs, units and the ledger lie where only root writes, files
under the home folder are written by a child that has become that user. The unit only calls a script, so that no text
of a stack is read by systemd; its environment is a file made from the sandbox's own at each start, with only the
declared names.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import packages as installer
from .environment import parse
from .fault import Failed
from .files import write
from .words import for_shell

ENVIRONMENT = "/etc/sandboxer/env"
STATE = "/var/lib/mcpiac"
SCRIPTS = "/etc/mcpiac"
UNITS = "/etc/systemd/system"
RUNTIME = "/run/mcpiac"
SHOWN = ("LoadState", "ActiveState", "SubState", "MainPID", "NRestarts", "ExecMainCode", "ExecMainStatus")


def run_script(definition: Mapping[str, Any], path: str) -> str:
    """What the unit calls: every word quoted for the shell, secrets taken from its environment."""
    lines = ["#!/bin/sh", "# Written by mcpiac; a change is lost with the next set-up.", "set -eu"]
    lines.append(f"cd {for_shell([['text', definition['cwd']]])}")
    lines.append(f"PATH={for_shell([['text', path]])}; export PATH")
    lines += [f"{name}={for_shell(pieces)}; export {name}" for name, pieces in sorted(definition["env"].items())]
    lines.append("exec " + " ".join(for_shell(pieces) for pieces in definition["argv"]))
    return "\n".join(lines) + "\n"


def unit(name: str, user: str, home: str, names: Sequence[str], environment: str = ENVIRONMENT) -> str:
    """The unit of one server. ``names`` are the secrets that it gets; names hold nothing that systemd reads."""
    fill = " ".join(["/usr/bin/python3", "-I", f"{STATE}/setup.pyz", "--environment", environment])
    return f"""[Unit]
Description=MCP server {name} (mcpiac)
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={user}
WorkingDirectory={home}
ExecStartPre=+{fill} {" ".join([f"{RUNTIME}/{name}.env", *names])}
EnvironmentFile=-{RUNTIME}/{name}.env
ExecStart={SCRIPTS}/{name}.run
Restart=always
RestartSec=1
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={home} /tmp
InaccessiblePaths=-{os.path.dirname(environment)} -{STATE} -{RUNTIME}

[Install]
WantedBy=multi-user.target
"""


class Manager:
    def __init__(self, values: dict[str, Any]) -> None:
        os.umask(0o022)
        self.name = values["server"]
        self.home = values["home"]
        self.user = pwd.getpwuid(os.stat(self.home).st_uid).pw_name
        self.names = values["pass"]
        self.unit = f"mcpiac-{self.name}.service"
        self.ledger = f"{STATE}/{self.name}.applied.json"
        self.tools: list[str] = []

    def path(self) -> str:
        """Where programs are looked for."""
        return ":".join([*self.tools, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])

    def secrets(self) -> dict[str, str]:
        """The sandbox's environment."""
        try:
            with open(ENVIRONMENT, encoding="utf-8", errors="surrogateescape") as file:
                return parse(file.read())
        except FileNotFoundError:
            return {}

    def as_user(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Do ``work`` in a child that has become the user who owns the home folder: root follows no link there."""
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            told: dict[str, Any]
            try:
                account = pwd.getpwnam(self.user)
                os.initgroups(account.pw_name, account.pw_gid)
                os.setgid(account.pw_gid)
                os.setuid(account.pw_uid)
                told = {"done": work()}
            except Failed as failed:
                told = {"failed": failed.told}
            except BaseException as fault:
                told = {"failed": {"code": "setup-failed", "summary": repr(fault), "hint": "", "lines": []}}
            with os.fdopen(write_end, "w") as pipe:
                json.dump(told, pipe)
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        told = json.loads(said or '{"failed": {"code": "setup-failed", "summary": "a step ended early"}}')
        if "failed" in told:
            raise Failed(**told["failed"])
        done: dict[str, Any] = told["done"]
        return done

    def load(self) -> dict[str, Any]:
        """What the last run left: ``files`` (path → digest) and ``service`` (digest)."""
        try:
            with open(self.ledger, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def store(self, ledger: dict[str, Any]) -> None:
        write(self.ledger, json.dumps(ledger).encode(), 0o600)

    def prepare(self, packages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Install what is missing, as the user, under a folder that is root's afterwards."""
        ready, self.tools = installer.install(packages, self.user)
        return ready

    def put(self, definition: dict[str, Any]) -> None:
        """Write the script and the unit, and (re)start it."""
        write(f"{SCRIPTS}/{self.name}.run", run_script(definition, self.path()).encode(), 0o755)
        text = unit(self.name, self.user, definition["cwd"], definition["pass"])
        write(f"{UNITS}/{self.unit}", text.encode(), 0o644)
        self._systemctl("daemon-reload")
        self._systemctl("enable", "--quiet", self.unit)
        self.restart()

    def restart(self) -> None:
        self._systemctl("restart", "--no-block", self.unit)

    def status(self) -> dict[str, Any]:
        """``state`` (``absent``: never set), ``up``, ``over`` (it will not come up by itself), ``pid``, ``restarts``,
        ``last_exit``."""
        said = self._systemctl("show", f"--property={','.join(SHOWN)}", self.unit)
        shown = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        active, sub = shown.get("ActiveState", ""), shown.get("SubState", "")
        state = {"active": "running", "activating": "starting", "failed": "failed"}.get(active, "stopped")
        if shown.get("LoadState") == "not-found":
            state = "absent"
        elif sub == "auto-restart":
            state = "backoff"
        killed = shown.get("ExecMainCode") in ("2", "3")
        status = shown.get("ExecMainStatus", "0")
        return {
            "state": state,
            "up": state in ("running", "starting"),
            "over": state == "failed",
            "pid": int(shown.get("MainPID", "0")) or None,
            "restarts": int(shown.get("NRestarts", "0") or 0),
            "last_exit": f"killed by signal {status}" if killed else f"exit code {status}",
        }

    def lines(self) -> list[str]:
        """The server's last lines."""
        words = ["journalctl", f"--unit={self.unit}", "--lines=20", "--output=cat", "--no-pager", "--quiet"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace")
        return done.stdout.splitlines()[-20:]

    def _systemctl(self, *words: str) -> str:
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed("service-manager", f"systemctl {words[0]} failed: {done.stderr.strip()}")
        return done.stdout
