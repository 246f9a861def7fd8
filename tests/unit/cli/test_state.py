"""``state``, ``unlock``, ``adopt``, ``destroy --orphans`` as typed; the last two against the contract server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.contract.conftest import short_home
from tests.contract.server_process import ContractServer
from tests.unit.state.test_store import apply
from tests.unit.state.values import LINEAGE

from mcpiac.state.lock import Processes
from mcpiac.state.store import Store

STACK = """\
stack: demo
provider: local
servers:
  files: {package: "npm:server", version: 1.0.0}
  other: {package: "npm:server", version: 1.0.0}
"""


class Project:
    """A project folder, and the command run in it."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.home = home
        (folder / "stacks").mkdir()
        (folder / "stacks" / "demo.yaml").write_text(STACK)
        self.store = Store(folder / "state")

    def run(self, *words: str, code: int = 0) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPIAC_")}
        ended = subprocess.run(
            [sys.executable, "-m", "mcpiac", *words],
            cwd=self.folder,
            env=kept | {"MCPIAC_HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def record(self, *names: str) -> None:
        with self.store.lock("demo", "apply", lineage=LINEAGE) as session:
            asyncio.run(apply(session.journal, *names))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with short_home() as home:
        yield Project(tmp_path, home)


def test_what_is_recorded_is_listed_shown_renamed_and_forgotten(project: Project) -> None:
    project.record("files", "other")
    assert project.run("state", "list").splitlines() == [
        "demo/files  sbx-files  http://127.0.0.1:18431",
        "demo/other  sbx-other  http://127.0.0.1:18431",
    ]
    assert json.loads(project.run("state", "show", "demo/files"))["sandbox"]["id"] == "sbx-files"
    assert "needs-confirmation" in project.run("state", "mv", "demo/files", "papers", code=1)
    project.run("state", "mv", "-y", "demo/files", "papers")
    said = project.run("state", "rm", "-y", "demo/other")
    assert "mcpiac adopt demo/other sbx-other" in said
    assert project.run("state", "list").split() == ["demo/papers", "sbx-files", "http://127.0.0.1:18431"]


def test_an_earlier_state_is_put_back_and_a_damaged_one_mended(project: Project) -> None:
    project.record("files")
    project.record("other")
    assert [line.split()[0] for line in project.run("state", "history", "demo").splitlines()] == ["2", "1"]
    assert "no longer recorded: other" in project.run("state", "rollback", "demo", "1", "-y")
    assert "demo/other" not in project.run("state", "list")
    project.run("state", "check")
    (project.folder / "state" / "demo.json").write_text("<<<<<<< HEAD\n")
    assert "state-merge-conflict" in project.run("state", "check", code=1)
    project.run("state", "repair", "-y", "demo")
    assert "rules hold" in project.run("state", "check")
    assert "Nothing is wrong" in project.run("state", "repair", "demo")


def test_a_lock_of_another_machine_is_taken_away_by_its_id(project: Project) -> None:
    project.record("files")
    holder = replace(Processes().holder("apply", "2026-11-30T00:00:00Z"), host="elsewhere")
    path = project.folder / "state" / "demo.holder.json"
    path.write_text(json.dumps(asdict(holder)))
    refused = project.run("state", "rm", "-y", "demo/files", code=1)
    assert f"mcpiac unlock {holder.id}" in refused
    assert "elsewhere" in project.run("unlock", "-y", "00000000", code=1)
    project.run("unlock", "-y", holder.id)
    project.run("state", "rm", "-y", "demo/files")


def test_a_forgotten_sandbox_is_adopted_and_an_orphan_deleted(project: Project) -> None:
    with ContractServer(socket=project.home / "run" / "daemon.sock"):
        project.run("apply", "-y", "demo")
        ids = dict(line.split()[:2] for line in project.run("state", "list").splitlines())
        project.run("state", "rm", "-y", "demo/files")
        assert ids["demo/files"] in project.run("plan", "demo")
        project.run("adopt", "-y", "demo/files", ids["demo/files"])
        project.run("apply", "-y", "demo")
        assert dict(line.split()[:2] for line in project.run("state", "list").splitlines()) == ids
        project.run("plan", "--detailed-exitcode", "demo")
        project.run("state", "rm", "-y", "demo/other")
        said = project.run("destroy", "--orphans", "demo", code=1)
        assert ids["demo/other"] in said, said
        assert "is deleted" in project.run("destroy", "--orphans", "-y", "demo")
        assert "no orphans" in project.run("destroy", "--orphans", "demo")
        project.run("destroy", "-y", "demo")
