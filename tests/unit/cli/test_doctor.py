"""doctor tells each lack of a project apart; what the machine lacks is tested with the machine's own findings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpiac import cli
from mcpiac.local import machine

STACK = """\
stack: demo
provider: local
servers:
  files:
    package: npm:@modelcontextprotocol/server-filesystem
    version: 2026.8.31
    args: [/tmp]
    secrets: {ALPHA: env:ALPHA}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "demo.yaml").write_text(STACK)
    (tmp_path / "state").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MCPIAC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MCPIAC_FINGERPRINT_KEY", raising=False)
    monkeypatch.setenv("ALPHA", "alpha-canary-77aa")
    return tmp_path


def doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = cli.main(["doctor", "--json"])
    told = capsys.readouterr()
    assert "alpha-canary" not in told.out + told.err
    found = json.loads(told.out)
    assert found["ok"] == (code == 0)
    return code, found["findings"]


def test_a_project_that_lacks_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = doctor(capsys)
    assert (code, [f for f in findings if f["level"] == "error"]) == (0, [])
    assert {"mcpiac", "project", "daemon", "secrets", "fingerprint-key"} <= {f["code"] for f in findings}
    assert not (project / "home").exists(), "it starts no daemon"
    assert not (project / "config").exists(), "it makes no key"


def unset(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALPHA")


def misspelt(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "stacks" / "demo.yaml").write_text(STACK.replace("args", "agrs"))


def torn_state(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "state" / "demo.json").write_text('{"version": 1,')


def empty_state(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "state" / "demo.json").write_text("")


def bad_key(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPIAC_FINGERPRINT_KEY", "rubbish")


def no_stacks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "stacks" / "demo.yaml").unlink()


def sick_machine(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lack = machine.Finding("no-bwrap", "error", "bubblewrap", "not installed", "no sandbox", "apt install bubblewrap")
    monkeypatch.setattr(machine, "examine", lambda home: (lack,))


@pytest.mark.parametrize(
    ("lack", "code", "says"),
    [
        (unset, "secret-not-set", "export ALPHA="),
        (misspelt, "unknown-key", "args"),
        (torn_state, "state-damaged", ""),
        (empty_state, "state-empty", ""),
        (bad_key, "fingerprint-key", "MCPIAC_FINGERPRINT_KEY"),
        (no_stacks, "no-stacks", "mcpiac init"),
        (sick_machine, "no-bwrap", "apt install bubblewrap"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_lack_is_told_with_its_cure(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lack: Callable[[Path, pytest.MonkeyPatch], None],
    code: str,
    says: str,
) -> None:
    lack(project, monkeypatch)
    ended, findings = doctor(capsys)
    wrong = [f for f in findings if f["level"] == "error"]
    assert (ended, [f["code"] for f in wrong]) == (1, [code])
    assert says in wrong[0]["cure"] + wrong[0]["found"]


def test_the_text_says_what_to_type(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unset(project, monkeypatch)
    assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("  ✗ secret "))
    assert shown[at + 1].strip() == "export ALPHA=…"
    assert shown[-1] == "1 finding in the way of `mcpiac apply`."
