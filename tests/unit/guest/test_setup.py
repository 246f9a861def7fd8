"""A server's set-up as files and a command, and what its output says."""

from __future__ import annotations

import ast
import io
import json
import shlex
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcpiac.guest import bridges, setup
from mcpiac.guest.program.manager_systemd import run_script, unit
from mcpiac.guest.program.words import parts
from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import CommandResult, Installed
from mcpiac.model.spec import Bridge, FileSpec, Package, SecretRef, ServerSpec

SERVER = Package("npm", "@scope/server", "1.2.3")
SPEC = ServerSpec(package=SERVER, args=("a b",), secrets={"TOKEN": SecretRef("env:X")}, env={"LEVEL": "info"})
LYING = Installed(SERVER, "/opt/x", ("node", "/opt/x/i.js"), "sha512-x", {})


def values(made: setup.Setup) -> dict[str, Any]:
    (name,) = [path for path in made.files if path.endswith(".setup.json")]
    found: dict[str, Any] = json.loads(made.files[name])
    return found


def test_a_set_up_is_files_and_one_command() -> None:
    made = setup.render(SPEC, server="files", kind="agent", port=8000, installed=[LYING], bridge_program=b"pyz")
    assert sorted(made.files) == [
        "/home/user/.mcpiac/files.setup.json",
        "/home/user/.mcpiac/mcpiac-bridge.pyz",
        "/home/user/.mcpiac/setup.pyz",
    ]
    assert shlex.split(made.command) == [
        "python3",
        "-I",
        "/home/user/.mcpiac/setup.pyz",
        "/home/user/.mcpiac/files.setup.json",
    ]
    assert values(made)["pass"] == ["TOKEN"]
    assert made.bridge == Bridge("mcpiac", "bundled")
    assert made.packages == (SERVER,)


def test_the_archive_is_the_same_each_time_and_runs_from_python_3_9_on() -> None:
    for kind in ("agent", "systemd"):
        with zipfile.ZipFile(io.BytesIO(setup.archive(kind))) as held:
            names = held.namelist()
            assert "__main__.py" in names
            for name in names:
                ast.parse(held.read(name), feature_version=(3, 9))
    setup.archive.cache_clear()
    again = setup.archive("agent")
    setup.archive.cache_clear()
    assert again == setup.archive("agent")


@pytest.mark.parametrize("name", list(bridges.KINDS))
def test_every_bridge_has_a_command_line_with_port_and_path(name: str) -> None:
    spec = replace(SPEC, bridge=Bridge(name), path="/mcp")  # type: ignore[arg-type]
    made = setup.render(spec, server="s", kind="agent", port=8123, bridge=bridges.resolve(name))
    flat = json.dumps(values(made)["words"])
    assert "8123" in flat
    assert name == "pypi:mcp-proxy" or "/mcp" in flat
    assert len(made.packages) == (1 if name == "mcpiac" else 2)


def test_a_bridge_with_a_fixed_path_refuses_another() -> None:
    spec = replace(SPEC, path="/other")
    with pytest.raises(Diagnosed) as told:
        setup.render(spec, server="s", kind="agent", port=1, bridge=bridges.resolve("pypi:mcp-proxy"))
    assert told.value.diagnostics[0].code == "bridge-fixed-path"


def test_a_server_that_speaks_http_gets_its_port() -> None:
    made = setup.render(replace(SPEC, transport="http"), server="s", kind="agent", port=8001)
    assert made.bridge is None
    assert values(made)["env"] == {"LEVEL": "info", "PORT": "8001"}
    declared = replace(SPEC, transport="http", env={"PORT": "x${port}"})
    assert values(setup.render(declared, server="s", kind="agent", port=8001))["env"]["PORT"] == "x${port}"


def test_equal_inputs_have_equal_digests_and_any_change_shows() -> None:
    def digest(spec: ServerSpec, port: int = 8000) -> str:
        return setup.render(spec, server="s", kind="agent", port=port).inputs

    assert digest(SPEC) == digest(replace(SPEC))
    different = [
        replace(SPEC, args=("a", "b")),
        replace(SPEC, env={}),
        replace(SPEC, files={"/home/user/a": FileSpec("x")}),
        replace(SPEC, path="/x"),
        replace(SPEC, bind="any"),
        replace(SPEC, transport="http"),
    ]
    assert len({digest(SPEC), digest(SPEC, 8001), *map(digest, different)}) == len(different) + 2


def test_only_the_named_files_are_sent() -> None:
    spec = replace(SPEC, files={"/home/user/a": FileSpec("AAA"), "/home/user/b": FileSpec("BBB")})
    made = setup.render(spec, server="s", kind="agent", port=1, write={"/home/user/a": "0" * 64})
    by_path = {f["path"]: f for f in values(made)["files"]}
    assert by_path["/home/user/a"]["recorded"] == "0" * 64
    assert "content" not in by_path["/home/user/b"]


def test_no_secret_value_is_ever_an_input() -> None:
    assert "env:X" not in json.dumps(values(setup.render(SPEC, server="s", kind="agent", port=1)))


def test_root_runs_only_what_it_has_compared(tmp_path: Path) -> None:
    """The command of a virtual machine copies away what the server's user could change, and compares it."""
    made = setup.render(SPEC, server="s", kind="systemd", port=8000)
    words = shlex.split(made.command)
    assert words[:4] == ["sudo", "-n", "sh", "-c"]
    script = words[4].replace("/var/lib/mcpiac", f"{tmp_path}/root").replace("/home/user", f"{tmp_path}/home")
    script = script.replace("exec python3 -I", "echo")
    for path, data in made.files.items():
        file = Path(f"{tmp_path}{path.replace('/home/user', '/home')}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    good = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert good.returncode == 0, good.stderr
    assert good.stdout.split() == [f"{tmp_path}/root/setup.pyz", f"{tmp_path}/root/s.setup.json"]
    (tmp_path / "home/.mcpiac/setup.pyz").write_bytes(b"changed by the server")
    assert subprocess.run(["sh", "-c", script], capture_output=True).returncode != 0


def test_facts_are_the_last_line_that_says_so() -> None:
    out = 'noise\n{"mcpiac-setup": {"setup": "1"}}\n'
    assert setup.parse_facts(out) == {"setup": "1"}
    assert setup.read(CommandResult(0, out, "")) == {"setup": "1"}
    for bad in (
        "",
        "x",
        '{"mcpiac-setup": [1]}',
        '{"mcpiac-setup"',
        '{"mcpiac-setup": {"a": "' + "x" * 300_000 + '"}}',
    ):
        assert setup.parse_facts(bad) == {}


@pytest.mark.parametrize(
    ("result", "code", "text"),
    [
        (
            CommandResult(
                1,
                '{"mcpiac-setup-error": {"code": "server-exits", "summary": "s", "hint": "", "lines": ["a", "b"]}}\n',
                "",
            ),
            "server-exits",
            "a\nb",
        ),
        (CommandResult(124, "", "last words", timed_out=True), "setup-timeout", "last words"),
        (CommandResult(1, "", "Traceback\nValueError: x"), "setup-failed", "Traceback\nValueError: x"),
        (CommandResult(0, "no facts", ""), "setup-failed", "no facts"),
    ],
)
def test_a_failure_says_what_the_guest_said(result: CommandResult, code: str, text: str) -> None:
    with pytest.raises(ProviderError) as told:
        setup.read(result)
    assert told.value.kind == "rejected"
    assert told.value.code == code
    assert told.value.output == text


def test_a_resolved_bridge_names_its_version() -> None:
    assert bridges.resolve() == Bridge("mcpiac", bridges.BUNDLED)
    assert bridges.resolve("supergateway") == Bridge("supergateway", "4.0.0")
    assert bridges.resolve("supergateway", "3.0.0") == Bridge("supergateway", "3.0.0")
    assert bridges.package(bridges.resolve("npm:mcp-proxy")) == Package("npm", "mcp-proxy", "6.7.19")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    script = tmp_path / "files.run"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    text = unit("files", "root", "/tmp", ["TOKEN"]).replace("/etc/mcpiac/files.run", str(script))
    file = tmp_path / "mcpiac-files.service"
    file.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mcpiac-files" not in done.stderr, done.stderr


def test_the_run_script_hands_on_every_word(tmp_path: Path) -> None:
    argv = ["printf", "%s\\n", "a b", "it's", "100%", "$HOME", "\\", "ü", "two\nlines", "${secret.TOKEN}"]
    definition = {
        "cwd": str(tmp_path),
        "argv": [parts(word, 1) for word in argv],
        "env": {"URL": parts("x ${secret.TOKEN} $${y}", 1)},
    }
    script = tmp_path / "run"
    script.write_text(run_script(definition, "/usr/bin:/bin").replace("exec ", 'printf "%s\\n" "$URL"; exec ', 1))
    said = subprocess.run(
        ["sh", str(script)], capture_output=True, text=True, env={"TOKEN": "s'e\"c"}, check=True
    ).stdout
    assert said == "x s'e\"c ${y}\na b\nit's\n100%\n$HOME\n\\\nü\ntwo\nlines\ns'e\"c\n"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
def test_the_run_script_is_clean(tmp_path: Path) -> None:
    definition = {"cwd": "/home/user", "argv": [parts("${secret.T}a'b", 1)], "env": {"A": parts("x", 1)}}
    script = tmp_path / "run"
    script.write_text(run_script(definition, "/usr/bin"))
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
