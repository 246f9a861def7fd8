"""Every kind of edit on real sandboxes: planned exactly, applied, planned again as empty, and real in what answers.

All cases live in one fleet, a server each: made as ``before``, edited to ``after``, and edited back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.local_kit import LocalDaemon
from tests.e2e.project import SERVER, Project, about, post, stand_in
from tests.unit.local.packages.conftest import Registry

pytestmark = pytest.mark.e2e

CREATE = ["create", "rename", "exec", "host-8000", "idle", "check"]
EXEC = ["exec", "check"]
HOST = ["host-8000", "check"]
RESTART = ["restart", "check"]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
NOTE = "/home/user/note.txt"
MORE = "/home/user/sub/more.txt"
SECRETS = {"ALPHA": "alpha-canary-1", "BETA": "beta-canary-1", "GAMMA": "gamma-canary-1"}
EDITED = {"ALPHA": "alpha-canary-2", "GAMMA": "gamma-canary-2"}


@dataclass
class Seen:
    """One server at one moment: its entry of ``output``, what itself told (None: not hosted), its live sandbox."""

    url: str | None
    token: str | None
    told: dict[str, Any] | None
    live: dict[str, Any]

    @property
    def tells(self) -> dict[str, Any]:
        assert self.told is not None
        return self.told

    @property
    def hosted(self) -> dict[int, dict[str, Any]]:
        return {item["port"]: item for item in self.live["hosted"]}


Proof = Callable[[Seen, Seen], None]
"""Looks at a server before and after the edit."""


@dataclass
class Case:
    """An edit of one server. ``there`` and ``back`` are the steps planned for it and for its undoing; ``moves``: its
    URL is not the same afterwards; ``keeps``: its service goes on."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    there: list[str]
    proof: Proof
    back: list[str] = field(default_factory=list)
    moves: bool = False
    keeps: bool = False


def env(seen: Seen, name: str) -> str | None:
    found: str | None = seen.tells["env"].get(name)
    return found


def _idle(was: Seen, now: Seen) -> None:
    assert (was.live["idleMinutes"], now.live["idleMinutes"]) == (15, 45)


def _idle_off(was: Seen, now: Seen) -> None:
    assert now.live["idleMinutes"] == 0


def _ttl(was: Seen, now: Seen) -> None:
    assert was.live["archiveAfter"] is None
    assert now.live["archiveAfter"] is not None


def _args(was: Seen, now: Seen) -> None:
    assert was.tells["argv"] == ["one"]
    assert now.tells["argv"] == ["one", "two words", "$HOME", "${x}"]


def _files(was: Seen, now: Seen) -> None:
    assert was.tells["files"] == {NOTE: ["old\n", "0644"]}
    assert now.tells["files"] == {NOTE: ["new ü\n", "0600"], MORE: ["more", "0644"]}


def _env(was: Seen, now: Seen) -> None:
    assert (env(was, "LEVEL"), env(was, "GONE"), env(was, "NEW")) == ("info", "soon", None)
    assert (env(now, "LEVEL"), env(now, "GONE"), env(now, "NEW")) == ("debug", None, "${x} ü")


def _secret(was: Seen, now: Seen) -> None:
    assert (env(was, "ALPHA"), env(now, "ALPHA")) == (SECRETS["ALPHA"], EDITED["ALPHA"])


def _secret_added(was: Seen, now: Seen) -> None:
    assert (env(was, "BETA"), env(now, "BETA")) == (None, SECRETS["BETA"])


def _secret_used(was: Seen, now: Seen) -> None:
    for seen, value in ((was, SECRETS["GAMMA"]), (now, EDITED["GAMMA"])):
        assert seen.tells["argv"] == [f"--key={value}"]
        assert seen.tells["files"] == {"/home/user/key": [value, "0600"]}


def _version(was: Seen, now: Seen) -> None:
    assert (was.tells["version"], now.tells["version"]) == ("1.0.0", "1.1.0")


def _port(was: Seen, now: Seen) -> None:
    assert (list(was.hosted), list(now.hosted)) == ([8000], [9000])


def _access(was: Seen, now: Seen) -> None:
    assert now.url is not None
    assert post(now.url, None, PING).status_code != 401
    assert now.hosted[8000]["access"] == "public"


def _hosted(was: Seen, now: Seen) -> None:
    assert (now.url, now.live["hosted"]) == (None, [])
    assert now.live["state"] == "ready"


def _size(was: Seen, now: Seen) -> None:
    assert (was.live["type"], now.live["type"]) == ("small", "large")
    assert now.tells["processes"] > was.tells["processes"]


def _disabled(was: Seen, now: Seen) -> None:
    assert (now.url, now.live["hosted"], now.live["state"]) == (None, [], "archived")


def _title(was: Seen, now: Seen) -> None:
    assert now.hosted[8000]["title"] == "Mine ☂"


def _path(was: Seen, now: Seen) -> None:
    assert now.url is not None
    assert now.url.endswith("/other")


def _http(was: Seen, now: Seen) -> None:
    assert now.tells["argv"] == ["--http"]
    assert "MCPIAC_BRIDGE_CHILD" not in now.tells["env"]


def _bind(was: Seen, now: Seen) -> None:
    assert (was.hosted[8000]["localhost"], now.hosted[8000]["localhost"]) == (True, False)


def _command(was: Seen, now: Seen) -> None:
    assert now.tells["argv"] == ["from-command"]


def _added(was: Seen, now: Seen) -> None:
    assert now.tells["argv"] == []


def _nothing(was: Seen, now: Seen) -> None:
    assert now.tells["parent"] == was.tells["parent"]


def cases() -> dict[str, Case]:
    """Server name → its edit."""
    alpha, beta, gamma = ({name: f"env:{name}"} for name in SECRETS)
    gamma_used = {
        "args": ["--key=${secret.GAMMA}"],
        "secrets": gamma,
        "files": {"/home/user/key": {"secret": "GAMMA", "mode": "0600"}},
    }
    npm = {"package": "npm:@t/tells", "version": "1.0.0"}
    pypi = {"package": "pypi:tells", "version": "1.0.0"}
    by_http = {"transport": "http", "args": ["--http"]}
    any_ = {"transport": "http", "args": ["--http-any"]}
    return {
        "idle": Case(stand_in(idle=15), stand_in(idle=45), ["idle", "check"], _idle, ["idle", "check"], keeps=True),
        "idle-off": Case(
            stand_in(), stand_in(idle="off"), ["idle", "check"], _idle_off, ["idle", "check"], keeps=True
        ),
        "ttl": Case(stand_in(), stand_in(ttl="8h"), ["ttl", "check"], _ttl, ["ttl", "check"], keeps=True),
        "args": Case(
            stand_in(args=["one"]), stand_in(args=["one", "two words", "$HOME", "$${x}"]), EXEC, _args, EXEC
        ),
        "files": Case(
            stand_in(files={NOTE: {"content": "old\n"}}),
            stand_in(files={NOTE: {"content": "new ü\n", "mode": "0600"}, MORE: {"content": "more"}}),
            EXEC,
            _files,
            EXEC,
        ),
        "env": Case(
            stand_in(env={"LEVEL": "info", "GONE": "soon"}),
            stand_in(env={"LEVEL": "debug", "NEW": "$${x} ü"}),
            EXEC,
            _env,
            EXEC,
        ),
        "secret": Case(stand_in(secrets=alpha), stand_in(secrets=alpha), RESTART, _secret, RESTART),
        "secret-added": Case(
            stand_in(),
            stand_in(secrets=beta),
            ["restart", "exec", "check"],
            _secret_added,
            ["restart", "exec", "check"],
        ),
        "secret-used": Case(
            stand_in(**gamma_used),
            stand_in(**gamma_used),
            ["restart", "exec", "check"],
            _secret_used,
            ["restart", "exec", "check"],
        ),
        "npm": Case(npm, {**npm, "version": "1.1.0"}, EXEC, _version, EXEC),
        "pypi": Case(pypi, {**pypi, "version": "1.1.0"}, EXEC, _version, EXEC),
        "port": Case(
            stand_in(port=8000),
            stand_in(port=9000),
            ["exec", "host-9000", "check", "hide-8000"],
            _port,
            ["exec", "host-8000", "check", "hide-9000"],
            moves=True,
        ),
        "access": Case(stand_in(), stand_in(access="public"), HOST, _access, HOST, keeps=True),
        "hosted": Case(stand_in(), stand_in(hosted=False), ["hide-8000", "check"], _hosted, HOST, keeps=True),
        "size": Case(stand_in(), stand_in(size="large"), RESTART, _size, RESTART),
        "added": Case(None, stand_in(), CREATE, _added, ["delete"]),
        "removed": Case(stand_in(), None, ["delete"], lambda was, now: None, CREATE),
        "disabled": Case(
            stand_in(), stand_in(disabled=True), ["hide-8000", "stop"], _disabled, ["resume", "host-8000", "check"]
        ),
        "title": Case(stand_in(), stand_in(title="Mine ☂"), HOST, _title, HOST, keeps=True),
        "path": Case(stand_in(), stand_in(path="/other"), EXEC, _path, EXEC, moves=True),
        "transport": Case(stand_in(), stand_in(**by_http), EXEC, _http, EXEC),
        "bind": Case(stand_in(**any_), stand_in(**any_, bind="any"), ["exec", *HOST], _bind, ["exec", *HOST]),
        "command": Case(
            stand_in(),
            {**stand_in(), "command": ["python3", "-u", SERVER, "from-command"]},
            EXEC,
            _command,
            EXEC,
        ),
        "labels": Case(stand_in(), stand_in(labels={"team": "a"}), ["record"], _nothing, ["record"], keeps=True),
        "recorded": Case(
            stand_in(),
            stand_in(timeouts={"check": 50}, lifecycle={"on_expiry": "resume"}, tools="ignore"),
            ["record"],
            _nothing,
            ["record"],
            keeps=True,
        ),
        "default": Case(
            stand_in(), stand_in(size="small", port=None, labels={}, title=""), [], _nothing, [], keeps=True
        ),
    }


def test_each_edit_is_planned_applied_and_real(
    tmp_path: Path, common_daemon: LocalDaemon, shelf: Registry, subtests: pytest.Subtests
) -> None:
    project = Project(tmp_path, common_daemon, SECRETS)
    project.registry(shelf.url)
    table = cases()
    try:
        project.declare(
            {name: case.before for name, case in table.items() if case.before is not None}
            | {"old-name": stand_in(args=["moved"])}
        )
        project.run("apply", "-y")
        project.settled()
        first = see(project)

        project.declare(
            {name: case.after for name, case in table.items() if case.after is not None}
            | {"new-name": stand_in(args=["moved"], lifecycle={"moved_from": "old-name"})}
        )
        project.secrets |= EDITED
        planned = project.plan()
        assert planned.code == 2
        with subtests.test("moved_from", step="plan"):
            assert planned.actions.pop("new-name") == ["record-move", "rename", "check"]
        for name, case in table.items():
            with subtests.test(name, step="plan"):
                assert planned.actions.get(name, []) == case.there
        project.run("apply", "-y")
        project.settled()
        second = see(project)
        with subtests.test("moved_from", step="effect"):
            was, now = first.pop("old-name"), second.pop("new-name")
            assert (was.url, was.token, was.tells["parent"]) == (now.url, now.token, now.tells["parent"])
            assert (was.live["id"], "--new-name-" in now.live["name"]) == (now.live["id"], True)
        for name, case in table.items():
            with subtests.test(name, step="effect"):
                _compare(case, first.get(name), second.get(name))
        assert set(second) == {name for name, case in table.items() if case.after is not None}

        project.declare({name: case.before for name, case in table.items() if case.before is not None})
        project.secrets |= SECRETS
        planned = project.plan()
        with subtests.test("moved_from", step="plan back"):
            assert planned.actions.pop("new-name") == ["delete"]
        for name, case in table.items():
            with subtests.test(name, step="plan back"):
                assert planned.actions.get(name, []) == case.back
        project.run("apply", "-y")
        project.settled()
        third = see(project)
        for name in set(first) - {"removed"}:
            with subtests.test(name, step="as it was"):
                was, now = first[name], third[name]
                assert (was.url, was.token, was.live["id"]) == (now.url, now.token, now.live["id"])
                assert _lasting(was) == _lasting(now)
    finally:
        project.close()


@pytest.mark.slow
def test_another_bridge(tmp_path: Path, common_daemon: LocalDaemon) -> None:
    """Slow: the other bridges come from the public registries."""
    project = Project(tmp_path, common_daemon)
    names = ("supergateway", "npm:mcp-proxy", "pypi:mcp-proxy")
    try:
        project.declare({name.replace(":", "-"): stand_in() for name in names})
        project.run("apply", "-y")
        project.declare({name.replace(":", "-"): stand_in(bridge={"name": name}) for name in names})
        assert project.plan().actions == {name.replace(":", "-"): EXEC for name in names}
        before = project.output()
        project.run("apply", "-y")
        project.settled()
        given = project.output()
        for name, server in given.items():
            assert (server["url"], server["token"]) == (before[name]["url"], before[name]["token"])
            assert "MCPIAC_BRIDGE_CHILD" not in about(server)["env"]
    finally:
        project.close()


def see(project: Project) -> dict[str, Seen]:
    """Every recorded server: its URL and token, what itself tells, its sandbox."""
    given = project.output()
    servers = json.loads((project.root / "state" / "demo.json").read_text())["servers"]
    found = {}
    for name in servers:
        entry = given.get(name) or {}
        url = entry.get("url")
        told = about(entry) if url else None
        found[name] = Seen(url, entry.get("token"), told, project.live(name))
    return found


def _compare(case: Case, was: Seen | None, now: Seen | None) -> None:
    if now is None:
        assert case.after is None
        return
    if was is not None:
        assert was.live["id"] == now.live["id"]
        if now.url is not None:
            assert (was.url == now.url) is not case.moves
        if now.token is not None and not case.moves:
            assert was.token == now.token
        if case.keeps and now.told is not None:
            assert was.tells["parent"] == now.told["parent"]
    case.proof(was or now, now)


def _lasting(seen: Seen) -> dict[str, Any]:
    """What is the same whenever the same is declared."""
    told = {key: value for key, value in seen.tells.items() if key not in ("parent", "env")}
    env = {name: value for name, value in seen.tells["env"].items() if name != "MCPIAC_BRIDGE_CHILD"}
    ports = {port: (item["access"], item["localhost"], item["title"]) for port, item in seen.hosted.items()}
    return {**told, "env": env, "ports": ports, "type": seen.live["type"], "idle": seen.live["idleMinutes"]}


def test_a_moved_server_takes_later_edits(tmp_path: Path, common_daemon: LocalDaemon) -> None:
    project = Project(tmp_path, common_daemon)
    try:
        project.declare({"old-name": stand_in(args=["one"])})
        project.run("apply", "-y")
        project.declare({"new-name": stand_in(args=["one"], lifecycle={"moved_from": "old-name"})})
        project.run("apply", "-y")
        assert "listening on" in project.run("logs", "new-name").stdout
        project.declare({"new-name": stand_in(args=["two"])})
        project.run("apply", "-y")
        assert see(project)["new-name"].tells["argv"] == ["two"]
        project.settled()
        services = project.run("exec", "new-name", "--", "sh", "-c", "ls ~/.mcpiac/services").stdout.split()
        assert services == ["old-name.json"]

        id = project.record("new-name")["id"]
        project.run("state", "rm", "-y", "demo/new-name")
        project.declare({"third-name": stand_in(args=["three"])})
        project.run("adopt", "-y", "demo/third-name", id)
        project.run("apply", "-y")
        project.settled()
        assert see(project)["third-name"].tells["argv"] == ["three"]
    finally:
        project.close()
