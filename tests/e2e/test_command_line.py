"""The commands over real sandboxes: saved plans, questions, secrets, JSON, interrupts, and what they leave alone."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.fleet import COMMAND
from tests.e2e.local_kit import LocalDaemon
from tests.e2e.project import Project, stand_in

pytestmark = pytest.mark.e2e

ALPHA = "alpha-canary-5d1c"


@pytest.fixture
def project(tmp_path: Path, daemon: LocalDaemon) -> Iterator[Project]:
    made = Project(tmp_path, daemon)
    yield made
    made.close()


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def tree(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_from_nothing_to_nothing(project: Project) -> None:
    project.declare({"one": stand_in(), "two": stand_in(idle=30)})
    assert "Plan: 2 to create" in project.run("plan").stdout
    assert project.run("plan", "--detailed-exitcode", ok=None).returncode == 2
    told = project.run("apply", "-y").stdout
    assert "Done in" in told
    assert "2 created" in told
    assert "ONE_MCP_AUTH" in told
    assert project.run("plan", "--detailed-exitcode", ok=None).returncode == 0
    assert "running" in project.run("status").stdout
    shown = project.output()
    exported = dict(line.removeprefix("export ").split("=", 1) for line in project.run("env").stdout.splitlines())
    assert exported["ONE_MCP_AUTH"] == shown["one"]["token"]
    assert exported["TWO_MCP_COOKIE"].strip("'") == f"__sbx_auth={shown['two']['token']}"
    client = json.loads(project.run("connect", "--print", "claude-code").stdout)["mcpServers"]
    assert client["one"]["url"] == shown["one"]["url"]
    assert client["one"]["headers"] == {"Cookie": "__sbx_auth=${ONE_MCP_AUTH}"}
    for verb in (["plan"], ["status"], ["output"], ["connect", "--print", "claude-code"], ["verify"]):
        told = project.run(*verb)
        assert not [s for s in shown.values() if s["token"] in told.stdout + told.stderr]
    assert "10 of 10 hold." in project.run("verify").stdout
    assert "2 destroyed" in project.run("destroy", "-y").stdout
    assert project.json("status")["servers"] == {}


def test_a_plan_changes_no_file(project: Project) -> None:
    project.declare({"one": stand_in()})
    before = tree(project.root)
    project.run("plan")
    project.run("validate")
    project.run("status")
    assert tree(project.root) == before


def test_without_a_terminal_and_without_a_yes_nothing_happens(project: Project) -> None:
    project.declare({"one": stand_in()})
    done = project.run("apply", ok=False)
    assert done.returncode == 1
    assert "error[needs-confirmation]" in done.stderr
    assert project.json("status")["servers"] == {}
    project.run("apply", "-y")
    assert project.run("apply").returncode == 0, "nothing to do needs no yes"


@pytest.mark.parametrize(("answer", "code"), [("yes", 0), ("y", 1), ("no", 1), ("", 1), ("\x04", 1)])
def test_on_a_terminal_only_yes_goes_on(project: Project, answer: str, code: int) -> None:
    project.declare({"one": stand_in()})
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "apply"], cwd=project.root, env=project.environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    asked = False
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        said += part
        if not asked and b"Only `yes` does: " in said:
            asked = True
            os.write(ours, answer.encode() + (b"" if answer == "\x04" else b"\n"))
    os.close(ours)
    assert process.wait(60) == code, said.decode()
    assert asked
    assert set(project.json("status")["servers"]) == ({"demo/one"} if code == 0 else set())


def test_a_saved_plan_is_closed_to_others_and_applied_as_it_is(project: Project) -> None:
    project.declare({"one": stand_in()})
    project.run("plan", "--out", "a.plan")
    file = project.root / "a.plan"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (project.root / "stacks" / "demo.yaml").unlink()
    project.run("apply", "-y", "a.plan")
    assert set(project.json("status")["servers"]) == {"demo/one"}


def test_a_saved_plan_whose_state_moved_is_refused(project: Project) -> None:
    project.declare({"one": stand_in()})
    project.run("apply", "-y")
    project.declare({"one": stand_in(idle=20)})
    project.run("plan", "--out", "a.plan")
    project.declare({"one": stand_in(idle=30)})
    project.run("apply", "-y")
    done = project.run("apply", "-y", "a.plan", ok=False)
    assert "error[plan-stale]" in done.stderr
    assert "serial 1" in done.stderr
    assert "mcpiac plan demo --out a.plan" in done.stderr


def test_a_saved_plan_takes_no_planning_flag_and_no_damage(project: Project) -> None:
    project.declare({"one": stand_in()})
    project.run("plan", "--out", "a.plan")
    assert "takes no --renew" in project.run("apply", "-y", "a.plan", "--renew", ok=False).stderr
    file = project.root / "a.plan"
    file.write_text(file.read_text().replace('"size": "small"', '"size": "large"'))
    assert "error[plan-file-damaged]" in project.run("apply", "-y", "a.plan", ok=False).stderr
    assert project.json("status")["servers"] == {}


def test_an_unset_secret_is_a_note_of_a_plan_and_stops_an_apply_before_anything(project: Project) -> None:
    project.declare({"one": stand_in(secrets={"ALPHA": "env:ALPHA"}), "two": stand_in()})
    done = project.run("plan")
    assert "note[secret-unset]" in done.stderr
    done = project.run("apply", "-y", ok=False)
    assert "error[secret-not-set]" in done.stderr
    assert "export ALPHA=" in done.stderr
    assert project.json("status")["servers"] == {}
    assert "demo/two" not in done.stderr


def test_a_secret_that_changed_since_the_plan_makes_it_stale(project: Project) -> None:
    project.secrets["ALPHA"] = ALPHA
    project.declare({"one": stand_in(secrets={"ALPHA": "env:ALPHA"})})
    project.run("apply", "-y")
    project.declare({"one": stand_in(secrets={"ALPHA": "env:ALPHA"}, idle=20)})
    project.run("plan", "--out", "a.plan")
    project.secrets["ALPHA"] = ALPHA + "-new"
    assert "secret ALPHA has changed since" in project.run("apply", "-y", "a.plan", ok=False).stderr
    project.secrets["ALPHA"] = ALPHA
    project.run("apply", "-y", "a.plan")


def test_untrusted_reads_no_secret_and_starts_nothing(project: Project, tmp_path: Path) -> None:
    project.declare({"one": stand_in(secrets={"ALPHA": "file:nowhere"})})
    home = tmp_path / "another-home"
    done = project.run("plan", "--untrusted", env={"MCPIAC_HOME": str(home), "MCPIAC_FINGERPRINT_KEY": "rubbish"})
    assert done.stdout.startswith("Untrusted: ")
    assert "1 to create" in done.stdout
    assert not home.exists()


def test_untrusted_plans_against_a_copy_of_the_state(project: Project) -> None:
    project.declare({"one": stand_in()})
    project.run("apply", "-y")
    copy = project.root / "copy.json"
    copy.write_bytes((project.root / "state" / "demo.json").read_bytes())
    project.run("destroy", "-y")
    assert "1 to create" in project.run("plan", "--untrusted", "demo").stdout
    assert "No changes" in project.run("plan", "--untrusted", "--state", "copy.json", "demo").stdout
    assert "error[state-" in project.run("plan", "--untrusted", "--state", "x", "demo", ok=False).stderr


def test_json_of_a_run_tells_all_and_in_order(project: Project) -> None:
    project.declare({"one": stand_in()})
    told = lines(project.run("apply", "-y", "--json").stdout)
    kinds = [event["type"] for event in told]
    assert kinds[0] == "plan"
    assert (kinds[1], kinds[-2], kinds[-1]) == ("run-started", "run-finished", "finished")
    assert {event["version"] for event in told} == {1}
    planned = [action["id"] for action in told[0]["actions"]]
    assert [a["id"] for a in told[1]["actions"]] == planned
    assert [e["action"] for e in told if e["type"] == "action-done"] == planned
    assert told[-1]["ok"] is True
    assert told[-1]["servers"][0]["url"] == project.output()["one"]["url"]


def test_two_stacks_with_a_server_of_one_name(project: Project) -> None:
    project.declare({"one": stand_in()})
    project.declare({"one": stand_in(), "more": stand_in()}, "other")
    project.run("apply", "-y")
    names = {line.split("=")[0].removeprefix("export ") for line in project.run("env").stdout.splitlines()}
    assert {"DEMO_ONE_MCP_AUTH", "OTHER_ONE_MCP_AUTH", "MORE_MCP_AUTH"} <= names
    assert "error[ambiguous-server]" in project.run("logs", "one", ok=False).stderr
    assert "Did you mean `more`?" in project.run("logs", "mroe", ok=False).stderr
    project.run("exec", "more", "--", "true")
    (project.root / "stacks" / "other.yaml").unlink()
    told = project.run("plan")
    assert "note[stack-file-gone]: other: 2 servers recorded" in told.stderr
    assert "other" not in project.run("apply", "-y").stdout
    assert "error[stack-file-gone]" in project.run("apply", "-y", "other", ok=False).stderr
    assert "2 destroyed" in project.run("destroy", "-y", "other").stdout
    assert set(project.json("status")["servers"]) == {"demo/one"}


def test_exec_passes_output_and_exit_code_through(project: Project) -> None:
    project.declare({"one": stand_in()})
    project.run("apply", "-y")
    script = "printf 'a\\033[31mb'; printf err >&2; exit 7"
    done = project.run("exec", "one", "--", "sh", "-c", script, ok=None, env={"CI": ""})
    assert (done.returncode, done.stdout, done.stderr) == (7, "a\x1b[31mb", "err")
    done = project.run("exec", "one", "--", "sh", "-c", script, ok=None, env={"CI": "true"})
    assert done.stdout == "a\\x1b[31mb"
    done = project.run("exec", "--timeout", "1", "one", "--", "sleep", "30", ok=False)
    assert "error[exec-timeout]" in done.stderr


def test_logs_show_the_server_s_own_words(project: Project) -> None:
    project.declare({"one": {"command": ["sh", "-c", "echo 'no module named \x1b[1mx' >&2; exit 3"]}})
    done = project.run("apply", "-y", ok=False)
    assert "mcpiac logs demo/one" in done.stderr
    assert "exit 3" in done.stderr
    shown = project.run("logs", "one").stdout
    assert "no module named" in shown
    assert "\x1b" not in shown
    told = lines(project.run("logs", "one", "--json", "--tail", "3").stdout)
    assert {event["type"] for event in told} == {"log"}


def test_an_interrupted_apply_is_recorded_and_gone_on_with(project: Project) -> None:
    project.declare({"one": {"command": ["sleep", "600"], "timeouts": {"check": 5}}, "two": stand_in()})
    process = subprocess.Popen(
        [COMMAND, "apply", "-y", "--json", "--parallelism", "1"],
        cwd=project.root,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = []
    for line in process.stdout:
        told.append(json.loads(line))
        if told[-1]["type"] == "action-done":
            process.send_signal(signal.SIGTERM)
            break
    told += lines(process.stdout.read())
    assert process.wait(60) == 130
    assert [e["because"] for e in told if e["type"] == "action-skipped"]
    assert told[-1]["interrupted"] is True
    project.declare({"one": stand_in(), "two": stand_in()})
    project.run("apply", "-y")
    project.settled()


def test_targets_and_labels_choose_servers(project: Project) -> None:
    project.declare({"one": stand_in(labels={"tier": "a"}), "two": stand_in()})
    project.run("apply", "-y", "-l", "tier=a")
    assert set(project.json("status")["servers"]) == {"demo/one"}
    project.run("apply", "-y", "--exclude", "one")
    assert set(project.json("status")["servers"]) == {"demo/one", "demo/two"}
    project.run("destroy", "-y", "--target", "demo/one")
    assert set(project.json("status")["servers"]) == {"demo/two"}
    assert project.json("status")["not_applied"] == [{"stack": "demo", "server": "one"}]
    assert "error[no-such-server]" in project.run("plan", "--target", "x", ok=False).stderr


def test_a_shell_that_evals_env_has_the_tokens(project: Project) -> None:
    project.declare({"a-b": stand_in()})
    project.run("apply", "-y")
    script = f'eval "$({COMMAND} env)"; printf %s "$A_B_MCP_AUTH"'
    done = subprocess.run(
        ["sh", "-c", script], cwd=project.root, env=project.environment, capture_output=True, text=True
    )
    assert done.stdout == project.output()["a-b"]["token"]


def test_python_m_is_the_same(project: Project) -> None:
    done = subprocess.run([sys.executable, "-m", "mcpiac", "version"], capture_output=True, text=True)
    assert done.stdout == project.run("version").stdout
