"""The order of one set-up: files, service, wait, look, facts."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import files, sockets
from .fault import Failed
from .words import expand, literal, parts

CRASHES = 3
"""A service that died this often before its port answered will not come up by itself."""


def run(values: dict[str, Any], manager: Any) -> dict[str, Any]:
    """Set the server up; the facts. Raises ``Failed``."""
    secrets = manager.secrets()
    _assert_secrets(values, secrets)
    ledger = manager.load()
    packages = manager.prepare(values["packages"])
    put = manager.as_user(
        lambda: files.put(
            values["files"],
            values["remove"],
            written=ledger.get("files", {}),
            overwrite=values["overwrite"],
            secrets=secrets,
        )
    )
    ledger["files"] = put["written"]
    ledger["stale"] = bool(put["changed"]) or ledger.get("stale", False)
    manager.store(ledger)

    if values.get("program") is not None:  # behind a bridge, nobody else would name it
        _assert_entry(literal(parts(values["program"], values["port"])), values["home"], manager.path())
    bridge = _bridge(values)
    definition = {
        "name": values["server"],
        "argv": expand(values["words"], packages, values["port"]),
        "env": {name: parts(text, values["port"]) for name, text in sorted(values["env"].items())},
        "pass": values["pass"],
        "cwd": values["home"],
        "port": values["port"],
    }
    _assert_entry(literal(definition["argv"][0]), values["home"], manager.path())
    status = manager.status()
    sockets.refuse_taken(values["port"], status)

    mark = files.sha256(json.dumps([definition, bridge], sort_keys=True).encode())
    old = {inode for _, inode in sockets.listeners(values["port"])}
    restarted = True
    if ledger.get("service") != mark or status["state"] == "absent":
        manager.put(definition)
    elif ledger["stale"] or not status["up"]:
        manager.restart()
    else:
        restarted = False
    ips = _wait(values, manager, not_these=old if restarted else set())
    manager.store({**ledger, "service": mark, "stale": False})
    sockets.assert_private(values["server"], ips, values["bind"])
    return {
        "setup": values["setup"],
        "changed": bool(put["changed"]) or restarted,
        "restarted": restarted,
        "bridge": {**values["bridge"], "sha256": bridge} if bridge else values["bridge"],
        "packages": [{key: p[key] for key in ("registry", "name", "version", "integrity")} for p in packages],
        "files": {f["path"]: f["sha256"] for f in values["files"] if "sha256" in f},
        "kept": put["kept"],
        "listen": [f"[{ip}]:{values['port']}" if ":" in ip else f"{ip}:{values['port']}" for ip in ips],
        "python": ".".join(str(number) for number in sys.version_info[:3]),
    }


def _assert_secrets(values: dict[str, Any], secrets: dict[str, str]) -> None:
    needed = {*values["pass"], *(f["secret"] for f in values["files"] if "secret" in f and f["write"])}
    missing = sorted(needed - set(secrets))
    if missing:
        raise Failed(
            "guest-secret-missing",
            f"the sandbox's environment lacks {', '.join(missing)}",
            "apply again: a changed secret reaches a sandbox by a restart of it",
        )


def _bridge(values: dict[str, Any]) -> str | None:
    """The digest of the bundled bridge, where that is used."""
    if not values["bridge"] or values["bridge"]["name"] != "mcpiac":
        return None
    data = files.read(os.path.join(values["home"], ".mcpiac", "mcpiac-bridge.pyz"))
    if data is None:
        raise Failed("bridge-missing", "the bridge is not in the guest", "apply with --upgrade-guest")
    return files.sha256(data)


def _assert_entry(program: str, cwd: str, path: str | None) -> None:
    where = os.path.join(cwd, program) if "/" in program else shutil.which(program, path=path)
    if not where or os.path.isdir(where) or not os.access(where, os.X_OK):
        raise Failed(
            "entry-not-found",
            f"{program} is not a program in the guest",
            'check `command`, or let `files` write it with mode "0755"',
        )


def _wait(values: dict[str, Any], manager: Any, not_these: set[str]) -> list[str]:
    """Until the port answers: where it listens. Raises when the service keeps dying, or time is up.

    ``not_these``: the sockets of the process that was replaced, which may take a moment to go.
    """
    server, port, seconds = values["server"], values["port"], values["wait"]
    deadline = time.monotonic() + seconds
    before, pause = manager.status()["restarts"], 0.02
    while True:
        fresh = [ip for ip, inode in sockets.listeners(port) if inode not in not_these]
        ips = sorted({ip for ip in fresh if sockets.answers(ip, port)})
        if ips:
            return ips
        status = manager.status()
        before = min(before, status["restarts"])
        if status["over"] or status["restarts"] - before >= CRASHES:
            raise Failed(
                "server-exits",
                f"the server of {server} exits at once: {status['last_exit'] or 'no exit status is known'}",
                "mend its args, env or secrets, then apply again",
                manager.lines(),
            )
        if time.monotonic() >= deadline:
            raise Failed(
                "server-never-listens",
                f"the server of {server} runs, but nothing listens on port {port} after {seconds:g} s",
                "if it only needs longer, raise `timeouts: {check: SECONDS}`; with `transport: http` it must listen "
                "on the port given in PORT",
                manager.lines(),
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


@contextmanager
def locked(path: str) -> Iterator[None]:
    """One set-up at a time in this guest: a second one waits here."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(argv: list[str], manager_type: Any) -> int:
    """``argv``: the archive, the values' file. Prints the facts or the fault as the last line of stdout."""
    with open(argv[1], encoding="utf-8") as file:
        values = json.load(file)
    try:
        with locked(os.path.join(os.path.dirname(os.path.abspath(argv[1])), "setup.lock")):
            facts = run(values, manager_type(values))
    except Failed as failed:
        print(f"{failed.told['code']}: {failed.told['summary']}", file=sys.stderr)
        print(json.dumps({"mcpiac-setup-error": failed.told}))
        return 1
    print(json.dumps({"mcpiac-setup": facts}))
    return 0
