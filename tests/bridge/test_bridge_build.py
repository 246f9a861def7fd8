"""The one file: the same bytes twice, and every supported Python on this machine runs it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.bridge.bridge_kit import Bridge, Client, server

from mcpiac.bridge.build import build_zipapp
from mcpiac.bridge.options import OPTIONS


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "mcpiac-bridge.pyz"
    path.write_bytes(build_zipapp())
    return path


def pythons() -> list[str]:
    """One interpreter of each minor version >= 3.9 that is here."""
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")):
        minor = ".".join(path.parts[-3].split(".")[:2])
        if int(minor.split(".")[1]) >= 9:
            found.setdefault(minor, str(path))
    return [found[minor] for minor in sorted(found)]


def test_the_same_bytes_in_another_process(pyz):
    code = "import sys; from mcpiac.bridge.build import build_zipapp; sys.stdout.buffer.write(build_zipapp())"
    other = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert other.stdout == pyz.read_bytes()


def test_it_holds_h11_with_its_licence_and_nothing_else_of_the_product(pyz):
    names = zipfile.ZipFile(pyz).namelist()
    assert "h11/_connection.py" in names
    assert any(name.startswith("h11/LICENSE") for name in names)
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "h11", "mcpiac_bridge"}


@pytest.mark.parametrize("python", pythons())
def test_every_python_runs_it(pyz, python):
    with Bridge(server("good_dual"), program=[python, "-I", str(pyz)]) as bridge:
        client = Client(bridge.port)
        client.initialize()
        assert client.echo("one file")["result"]["content"][0]["text"] == "one file"


def test_help_names_every_option_and_usage_errors_exit_with_1(pyz):
    run = subprocess.run([sys.executable, str(pyz), "--help"], capture_output=True, text=True, check=True)
    assert "--allow-host NAME" in run.stdout
    for arguments, words in (
        (["--port", "8000"], "after --"),
        (["--host", "0.0.0.0", "--", "cat"], "loopback"),
        (["--port", "70000", "--", "cat"], "no port"),
        (["--nonsense", "--", "cat"], "unknown option --nonsense"),
        (["--max-body", "-1", "--", "cat"], "--max-body"),
    ):
        run = subprocess.run([sys.executable, str(pyz), *arguments], capture_output=True, text=True)
        assert (run.returncode, words in run.stderr) == (1, True), run.stderr


def test_every_option_is_in_the_docs():
    text = (Path(__file__).parent.parent.parent / "docs" / "bridge.md").read_text()
    assert [o.name for o in OPTIONS if f"`{o.name} {o.placeholder}` | {o.text}" not in text] == []
