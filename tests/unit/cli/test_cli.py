"""The command line itself: help, usage errors, exit codes, streams; in a process of its own where that matters."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mcpiac import _version, cli
from mcpiac.commands import catalog, parser

ROOT = Path(__file__).parents[3]
STACK = """\
stack: demo
provider: local
servers:
  files: {package: "npm:@modelcontextprotocol/server-filesystem", version: 2026.8.31, args: [/tmp]}
"""


def run(*words: str, cwd: Path, stdout: int = subprocess.PIPE, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MCPIAC_") and k not in ("CI", "NO_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "mcpiac", *words],
        cwd=cwd,
        env=kept | {"MCPIAC_HOME": str(cwd / "home"), "XDG_CONFIG_HOME": str(cwd / "config"), "COLUMNS": "80"} | env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "demo.yaml").write_text(STACK)
    return tmp_path


@pytest.mark.parametrize("verb", catalog.VERBS)
def test_help_opens_with_one_sentence_and_two_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "--help"])
    assert ended.value.code == 0
    first, blank, *rest = capsys.readouterr().out.splitlines()
    assert first == catalog.VERBS[verb]
    assert first.endswith(".")
    assert blank == ""
    assert all(line.startswith("  ") and "mcpiac" in line for line in rest[:2])
    assert rest[2] == ""
    assert rest[3].startswith("usage:")


@pytest.mark.parametrize("verb", catalog.VERBS)
def test_examples_are_real(verb: str) -> None:
    """Each command of an example parses (what it pipes into is not ours)."""
    for line in parser.parser(verb).examples:
        for part in re.split(r"\s&&\s|\s\|\s|\s>\s|\"\$\(|\)\"", line):
            words = part.split()
            if words[:1] == ["mcpiac"]:
                assert parser.parse(words[1:]).verb in catalog.VERBS


def test_every_verb_is_in_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert not [verb for verb in catalog.VERBS if f"\n  {verb} " not in shown]
    assert not [verb for verb in catalog.LATER if f"\n  {verb} " in shown]


@pytest.mark.parametrize("verb", sorted(catalog.LATER))
def test_a_later_verb_says_so(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([verb]) == 1
    assert "comes with a later version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frobnicate"], "not a verb"),
        (["aply"], "Did you mean `mcpiac apply`?"),
        (["plan", "--no-such-flag"], "--no-such-flag"),
        (["plan", "--targ", "x"], "--targ"),
        (["apply", "--parallelism", "0"], "whole number"),
        (["apply", "--parallelism", "many"], "whole number"),
        (["plan", "--deep"], "later version"),
        (["plan", "--state", "x"], "goes with --untrusted"),
        (["plan", "--refresh-only", "--destroy"], "exclude each other"),
        (["plan", "-l", "team"], "NAME=VALUE"),
        (["exec", "files"], "no command"),
        (["logs"], "SERVER"),
        (["completion", "tcsh"], "tcsh"),
        (["daemon"], "ACTION"),
        (["daemon", "install"], "install"),
        (["-x", "plan"], "-x"),
        (["connect"], "later version"),
    ],
)
def test_a_usage_error_ends_with_1(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 1
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_nothing_typed_shows_the_overview_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 1
    assert "usage: mcpiac" in capsys.readouterr().err


def test_flags_and_names_may_stand_in_any_order() -> None:
    args = parser.parse(["plan", "demo", "--json", "other", "-C", "x", "--target", "a", "--target=b"])
    assert (args.stacks, args.json, args.chdir, args.target) == (["demo", "other"], True, "x", ["a", "b"])
    assert parser.parse(["-C", "y", "plan"]).chdir == "y"
    assert parser.parse(["-Cy", "plan"]).chdir == "y"


def test_exec_takes_everything_after_the_dashes() -> None:
    args = parser.parse(["exec", "files", "--timeout", "5", "--", "ls", "-l", "--", "--json"])
    assert (args.server, args.timeout, args.command) == ("files", 5, ["ls", "-l", "--", "--json"])


def test_the_version_is_the_one_that_is_packaged() -> None:
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert packaged == _version.VERSION


def test_findings_of_a_json_run_are_json(project: Path) -> None:
    (project / "stacks" / "demo.yaml").write_text(STACK.replace("args", "agrs"))
    done = run("validate", "--json", cwd=project)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [f["type"] for f in found] == ["diagnostic", "validated"]
    assert (found[0]["code"], found[0]["origin"]["line"], found[1]["valid"]) == ("unknown-key", 4, False)
    assert done.stderr == ""


def test_a_reader_that_leaves_is_no_traceback(project: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run("schema", cwd=project, stdout=writer)
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["version", "schema"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_stdout_is_an_error(project: Path, verb: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = run(verb, cwd=project, stdout=full.fileno(), PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr == "error[output-not-written]: the output could not be written: No space left on device\n"


def test_a_closed_stdout_is_no_traceback(project: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m mcpiac validate >&-"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_ascii_terminal_gets_escapes_and_no_traceback(project: Path) -> None:
    (project / "stacks" / "demo.yaml").write_text(STACK.replace("args", "ärgs"), encoding="utf-8")
    done = run("validate", cwd=project, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 1
    assert "\\xe4rgs" in done.stderr


def test_a_fault_of_ours_asks_for_a_report(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(parser.module("validate"), "run", lambda *_: 1 / 0)
    assert cli.main(["validate"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert "Please report" in shown


def test_no_project_is_told(tmp_path: Path) -> None:
    done = run("plan", cwd=tmp_path)
    assert done.returncode == 1
    assert "error[no-project]" in done.stderr
    assert "mcpiac init" in done.stderr


WAITS = """\
import sys, threading
from mcpiac import cli
from mcpiac.commands import parser

def run(*_):
    print("waits", flush=True)
    threading.Event().wait(60)

parser.module("schema").run = run
sys.exit(cli.main(["schema"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_anything_was_changed_ends_with_130(project: Path, number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "nothing was changed" in err) == (130, True), err


def test_nohup_stays_in_force(project: Path) -> None:
    words = [sys.executable, "-c", WAITS.replace("threading.Event().wait(60)", "return input() and 0")]
    process = subprocess.Popen(
        words,
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGHUP)
    process.communicate("go on\n", timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_verb(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert not [verb for verb in catalog.VERBS if verb not in script]


def test_the_bash_completion_is_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["completion", "bash"])
    script = tmp_path / "c.bash"
    script.write_text(capsys.readouterr().out)
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0


def test_what_plan_says_to_run_does_what_was_looked_at(project: Path) -> None:
    words = ("--target", "files", "-l", "team=a b", "--allow-empty")
    (project / "stacks" / "demo.yaml").write_text(STACK.replace("args:", 'labels: {team: "a b"}, args:'))
    done = run("plan", "demo", "--untrusted", *words, cwd=project)
    assert done.stdout.endswith("Run `mcpiac apply demo --target files -l 'team=a b' --allow-empty` to do this.\n"), (
        done.stdout + done.stderr
    )


def test_each_server_is_offered_once(project: Path) -> None:
    done = run("plan", "--untrusted", "--target", "nothing-like-it", cwd=project)
    assert done.stderr.splitlines()[-1] == "  There is: files."
