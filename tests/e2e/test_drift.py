"""Somebody else changed what runs, through the daemon's own API: the plan says so, and apply mends it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.local_kit import LocalDaemon
from tests.e2e.project import Project, about, stand_in

pytestmark = pytest.mark.e2e

NOTE = "/home/user/note.txt"


def _hide(daemon: LocalDaemon, id: str) -> None:
    daemon.call("DELETE", f"/sandboxes/{id}/host?port=8000")


def _host(port: int, **more: object) -> Callable[[LocalDaemon, str], None]:
    def act(daemon: LocalDaemon, id: str) -> None:
        daemon.call("POST", f"/sandboxes/{id}/host", {"port": port, "localhost": True, **more})

    return act


def _patch(**body: object) -> Callable[[LocalDaemon, str], None]:
    return lambda daemon, id: daemon.call("PATCH", f"/sandboxes/{id}", body)


def _stop(daemon: LocalDaemon, id: str) -> None:
    daemon.call("POST", f"/sandboxes/{id}/stop", {})
    daemon.await_state(id, "archived")


def _resume(daemon: LocalDaemon, id: str) -> None:
    daemon.call("POST", f"/sandboxes/{id}/resume", {})
    daemon.await_state(id, "ready")


def _resize(daemon: LocalDaemon, id: str) -> None:
    _stop(daemon, id)
    daemon.call("POST", f"/sandboxes/{id}/resume", {"type": "large"})
    daemon.await_state(id, "ready")


def _pause(daemon: LocalDaemon, id: str) -> None:
    daemon.call("POST", f"/sandboxes/{id}/pause")


def _edit(daemon: LocalDaemon, id: str) -> None:
    daemon.put(id, NOTE, "the server's own words")


@dataclass
class Case:
    """What is done behind the back, and what is planned for it. ``lost``: the sandbox is another one afterwards."""

    act: Callable[[LocalDaemon, str], object]
    steps: list[str]
    lost: bool = False


CASES = {
    "deleted": Case(LocalDaemon.delete, ["create", "rename", "exec", "host-8000", "idle", "check"], lost=True),
    "hidden": Case(_hide, ["host-8000", "check"]),
    "added": Case(_host(7000), ["hide-7000", "check"]),
    "public": Case(_host(8000, public=True), ["host-8000", "check"]),
    "idle": Case(_patch(idleMinutes=3), ["idle", "check"]),
    "idle-off": Case(_patch(idleMinutes=0), ["idle", "check"]),
    "stopped": Case(_stop, ["resume", "check"]),
    "resized": Case(_resize, ["restart", "check"]),
    "started": Case(_resume, ["stop"]),
    "paused": Case(_pause, []),
    "edited": Case(_edit, []),
    "untouched": Case(lambda daemon, id: None, []),
}


def test_drift_is_seen_and_mended(tmp_path: Path, common_daemon: LocalDaemon, subtests: pytest.Subtests) -> None:
    project = Project(tmp_path, common_daemon)
    servers = {name: stand_in(files={NOTE: {"content": "declared"}}) for name in CASES}
    project.declare(servers)
    try:
        project.run("apply", "-y")
        servers["started"]["disabled"] = True
        project.declare(servers)
        project.run("apply", "-y")
        given = project.output()
        before = {name: project.live(name)["id"] for name in CASES}
        for name, case in CASES.items():
            case.act(common_daemon, before[name])

        planned = project.plan()
        told = project.run("plan").stdout
        assert planned.code == 2
        for name, case in CASES.items():
            with subtests.test(name, step="plan"):
                assert planned.actions.get(name, []) == case.steps
                assert planned.changes[name]["drift"] is bool(case.steps)
        assert re.search(r"! hidden +drifted: port 8000 is no longer hosted", told)
        assert f"{sum(bool(case.steps) for case in CASES.values())} drifted" in told
        assert common_daemon.get(before["paused"])["pausedAt"] is not None, "a look never wakes"

        project.run("apply", "-y")
        project.settled()
        now = project.output()
        for name, case in CASES.items():
            with subtests.test(name, step="mended"):
                live = project.live(name)
                assert (live["id"] != before[name]) is case.lost
                assert live["idleMinutes"] == 15
                if name == "started":
                    assert live["state"] == "archived"
                    continue
                assert [item["port"] for item in live["hosted"]] == [8000]
                assert live["type"] == "small"
                if not case.lost:
                    assert (now[name]["url"], now[name]["token"]) == (given[name]["url"], given[name]["token"])
                text = "the server's own words" if name == "edited" else "declared"
                assert about(now[name])["files"][NOTE][0] == text
    finally:
        project.close()


def test_live_can_be_taken_over_into_the_record(tmp_path: Path, common_daemon: LocalDaemon) -> None:
    """``--refresh-only`` sends nothing; the next plan shows as a change what was drift."""
    project = Project(tmp_path, common_daemon)
    project.declare({"one": stand_in()})
    try:
        project.run("apply", "-y")
        id = project.record("one")["id"]
        common_daemon.call("PATCH", f"/sandboxes/{id}", {"idleMinutes": 3})
        project.run("apply", "-y", "--refresh-only")
        assert (project.live("one")["idleMinutes"], project.record("one")["idle"]) == (3, 3)
        planned = project.plan()
        assert planned.actions == {"one": ["idle", "check"]}
        assert not planned.changes["one"]["drift"]
        project.run("apply", "-y")
        project.settled()
        assert project.live("one")["idleMinutes"] == 15
        assert json.loads((project.root / "state" / "demo.json").read_text())["servers"].keys() == {"one"}
    finally:
        project.close()
