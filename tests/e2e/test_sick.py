"""Sick servers, packages, registries and hosts: one clear error each, what exists stays recorded, and once the cause
is gone the next apply goes on from there."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.local_kit import LocalDaemon
from tests.e2e.project import SERVER, Project, about, call, stand_in
from tests.unit.local.packages.conftest import Registry

pytestmark = pytest.mark.e2e


def program(text: str, **keys: Any) -> dict[str, Any]:
    return {"command": ["python3", SERVER], "files": {SERVER: {"content": text}}, **keys}


@dataclass
class Case:
    """A sick server and how it is cured. ``says``: what its error holds."""

    sick: dict[str, Any]
    cured: dict[str, Any]
    says: list[str] = field(default_factory=list)


NPM = {"package": "npm:@t/tells", "version": "1.0.0"}
PYPI = {"package": "pypi:tells", "version": "1.0.0"}
SILENT = "import time\ntime.sleep(600)\n"
LISTENS_NOT = {"transport": "http", "timeouts": {"check": 2}}
NOT_MCP = """\
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Page(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Page).serve_forever()
"""
CASES = {
    "npm-unknown": Case({**NPM, "package": "npm:@t/tels"}, NPM, ["exec", "npm:@t/tels", "does not exist"]),
    "npm-version": Case({**NPM, "version": "9.9.9"}, NPM, ["exec", "9.9.9", "no such version", "nearest: 1.1.0"]),
    "npm-hosts": Case(
        NPM | {"build": {"scripts": True, "hosts": ["nothing.invalid"]}},
        NPM | {"build": {"scripts": True}},
        ["exec", "host_unresolved", "nothing.invalid cannot be resolved"],
    ),
    "pypi-unknown": Case({**PYPI, "package": "pypi:tels"}, PYPI, ["exec", "pypi:tels", "does not exist"]),
    "pypi-version": Case({**PYPI, "version": "9.9.9"}, PYPI, ["exec", "9.9.9", "no such version", "1.1.0"]),
    "exits": Case(stand_in("dies_at_start.py"), stand_in(), ["ended (exit 1)", "missing API key"]),
    "tty": Case(stand_in("needs_tty.py"), stand_in(), ["ended (exit 1)", "run from a terminal"]),
    "crashes": Case(program("import nothing_of_it\n"), stand_in(), ["ended (exit 1)", "nothing_of_it"]),
    "no-program": Case(
        {"command": ["/home/user/none"]}, stand_in(), ["entry-not-found", "/home/user/none is not a program"]
    ),
    "silent": Case(program(SILENT, timeouts={"check": 2}), stand_in(), ["check", "server-silent"]),
    "deaf": Case(program(SILENT, **LISTENS_NOT), stand_in(), ["nothing listens on port 8000"]),
    "page": Case(program(NOT_MCP, transport="http"), stand_in(), ["check", "not in MCP"]),
}
WELL = {"banner": "banner_first.py", "crlf": "crlf.py", "slow": "slow_start.py", "modern": "good_modern.py"}


def failures(project: Project) -> dict[str, dict[str, Any]]:
    """Server → the one error that an apply told of it."""
    done = project.run("apply", "-y", "--json", ok=False)
    found: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        if event["type"] == "action-failed":
            server = event["action"].split(".")[0]
            assert server not in found, "one error each"
            found[server] = event["diagnostic"]
    return found


def test_each_sickness_is_told_and_the_next_apply_goes_on(
    tmp_path: Path, common_daemon: LocalDaemon, shelf: Registry, subtests: pytest.Subtests
) -> None:
    project = Project(tmp_path, common_daemon)
    project.registry(shelf.url)
    well = {name: stand_in(script) for name, script in WELL.items()}
    project.declare({name: case.sick for name, case in CASES.items()} | well)
    try:
        told = failures(project)
        for name, case in CASES.items():
            with subtests.test(name, step="told"):
                diagnostic = told[name]
                text = json.dumps(diagnostic)
                assert diagnostic["severity"] == "error"
                assert diagnostic["hint"], "what to do next"
                assert not [word for word in case.says if word not in text], text
                assert "(recorded)" in text
        assert set(told) == set(CASES)
        given = project.output()
        for name in WELL:
            with subtests.test(name, step="works"):
                assert call(given[name], "echo", {"text": "hé"}) == "hé"
        ids = {name: project.record(name)["id"] for name in CASES}

        project.declare({name: case.cured for name, case in CASES.items()} | well)
        planned = project.plan()
        for name in CASES:
            with subtests.test(name, step="goes on"):
                assert "exec" in planned.actions[name]
                assert "create" not in planned.actions[name]
                assert planned.actions[name][-1] == "check"
        assert not set(WELL) & set(planned.actions)
        project.run("apply", "-y")
        project.settled()
        given = project.output()
        for name in CASES:
            with subtests.test(name, step="cured"):
                assert project.record(name)["id"] == ids[name]
                assert about(given[name])["version"]
    finally:
        project.close()


def test_a_registry_that_is_not_reachable(tmp_path: Path, common_daemon: LocalDaemon, shelf: Registry) -> None:
    project = Project(tmp_path, common_daemon)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and nobody listens: connections are refused
        project.registry(f"http://127.0.0.1:{closed.getsockname()[1]}")
        versions = {"version": "1.1.0"}
        project.declare({"npm": NPM | versions, "pypi": PYPI | versions, "other": stand_in()})
        try:
            told = failures(project)
            assert set(told) == {"npm", "pypi"}
            for diagnostic in told.values():
                assert "registry" in diagnostic["summary"]
                assert "127.0.0.1" in json.dumps(diagnostic)
                assert diagnostic["hint"]
            assert about(project.output()["other"])
            ids = {name: project.record(name)["id"] for name in told}
            project.registry(shelf.url)
            assert "other" not in project.plan().actions
            project.run("apply", "-y")
            project.settled()
            given = project.output()
            for name, id in ids.items():
                assert about(given[name])["version"] == "1.1.0"
                assert project.record(name)["id"] == id
        finally:
            project.close()


def test_a_secret_without_a_value_stops_before_anything_is_done(tmp_path: Path, common_daemon: LocalDaemon) -> None:
    project = Project(tmp_path, common_daemon)
    secrets = {"FIRST": "env:FIRST", "SECOND": "file:second.txt"}
    project.declare({"one": stand_in(secrets=secrets), "two": stand_in()})
    try:
        before = [box["id"] for box in common_daemon.list()]
        planned = project.plan()
        assert planned.code == 2
        assert {d["code"] for d in planned.plan["diagnostics"]} == {"secret-unset"}
        done = project.run("apply", "-y", ok=False)
        assert done.returncode == 1
        assert "FIRST" in done.stderr
        assert "SECOND" in done.stderr, "all are told, not the first"
        assert "export FIRST=" in done.stderr
        assert [box["id"] for box in common_daemon.list()] == before
        assert not (tmp_path / "state" / "demo.json").exists()
        project.secrets["FIRST"] = "first-canary"
        (tmp_path / "second.txt").write_text("second-canary")
        project.run("apply", "-y")
        project.settled()
        env = about(project.output()["one"])["env"]
        assert (env["FIRST"], env["SECOND"]) == ("first-canary", "second-canary")
    finally:
        project.close()


def test_a_recorded_port_that_another_program_has_taken(tmp_path: Path, common_daemon: LocalDaemon) -> None:
    """Never another port: the URL that clients have goes on to be the one."""
    project = Project(tmp_path, common_daemon)
    project.declare({"one": stand_in(), "two": stand_in()})
    try:
        project.run("apply", "-y")
        given = project.output()
        id, port = project.record("one")["id"], int(given["one"]["url"].split(":")[2].split("/")[0])
        common_daemon.call("DELETE", f"/sandboxes/{id}/host?port=8000")
        with socket.create_server(("127.0.0.1", port)):
            told = failures(project)
            assert set(told) == {"one"}
            assert f"port {port} of this machine is taken by another program" in told["one"]["summary"]
            assert told["one"]["hint"]
            assert about(given["two"])
        project.run("apply", "-y")
        project.settled()
        assert project.output() == given
    finally:
        project.close()


def test_a_port_that_was_taken_while_the_daemon_was_down(tmp_path: Path, own_daemon: LocalDaemon) -> None:
    project = Project(tmp_path, own_daemon)
    project.declare({"one": stand_in()})
    try:
        project.run("apply", "-y")
        given = project.output()
        port = int(given["one"]["url"].split(":")[2].split("/")[0])
        own_daemon.end()
        with socket.create_server(("127.0.0.1", port)):
            own_daemon.start()
            assert project.plan().actions == {"one": ["host-8000", "check"]}
            assert "port 8000 is no longer hosted" in project.run("status").stdout
            assert f"port {port} of this machine is taken by another program" in failures(project)["one"]["summary"]
        project.run("apply", "-y")
        project.settled()
        assert project.output() == given
    finally:
        project.close()


def test_what_a_failed_apply_says(tmp_path: Path, common_daemon: LocalDaemon) -> None:
    """As text: what failed, why in the server's own words, what is kept, the command that goes on."""
    project = Project(tmp_path, common_daemon)
    project.declare({"bad": program("import sys\nsys.exit('no such city: Atlantis')\n")})
    try:
        done = project.run("apply", "-y", ok=False)
        assert done.returncode == 1
        assert (
            "error[check-failed] demo/bad: check: no MCP session could be opened: the server ended (exit 1)"
            in done.stderr
        )
        assert "no such city: Atlantis" in done.stderr
        assert "created so far and kept: sandbox sbx_" in done.stderr
        assert "mcpiac logs demo/bad" in done.stderr
        assert "What was done is recorded. Go on with:  mcpiac apply" in done.stderr
        assert "the last set-up or check failed" in project.run("plan").stdout
        assert "the last apply failed" in project.run("status").stdout
        assert "no such city: Atlantis" in project.run("logs", "bad").stdout
    finally:
        project.close()
