"""Finding and starting the local daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import sys
import textwrap
from pathlib import Path

import pytest

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.providers import daemon as module
from mcpiac.providers.daemon import Daemon, home


def test_the_home_is_the_users_unless_named(tmp_path: Path) -> None:
    assert home({"HOME": "/home/x"}) == Path("/home/x/.local/share/mcpiac")
    assert home({"HOME": "/home/x", "MCPIAC_HOME": str(tmp_path)}) == tmp_path


@pytest.mark.parametrize("length", [10, 300])
def test_a_socket_is_found_however_long_its_path(tmp_path: Path, length: int) -> None:
    place = tmp_path / "/".join(["d" * 100] * (length // 100) + ["e"])
    made = Daemon({"MCPIAC_HOME": str(place)})
    with contextlib.closing(made):
        assert not made.listens()
        (place / "run").mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(made.socket)
            server.listen()
            assert made.listens()
            assert stat.S_ISSOCK(os.stat(place / "run" / "daemon.sock").st_mode)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is started in the daemon's place: a script of the test's own."""
    script = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def write(script: Path, code: str) -> None:
    real = os.path.realpath("/proc/self/exe")
    script.write_text(f"#!{real}\n{textwrap.dedent(code)}")
    script.chmod(0o755)


def test_a_daemon_that_cannot_start_is_told_in_its_own_words(tmp_path: Path, stand_in: Path) -> None:
    write(stand_in, "import sys; print('user namespaces are switched off', file=sys.stderr); sys.exit(1)")
    made = Daemon({"MCPIAC_HOME": str(tmp_path / "home")})
    with pytest.raises(Diagnosed) as told:
        asyncio.run(made.ensure())
    (said,) = told.value.diagnostics
    assert said.code == "daemon-not-starting"
    assert "exited with 1" in said.summary
    assert said.detail == "user namespaces are switched off"
    assert said.hint == "run `mcpiac doctor`"


def test_a_daemon_that_stays_silent_is_given_up(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.3)
    pid = tmp_path / "pid"
    write(stand_in, f"import os, time; open('{pid}', 'w').write(str(os.getpid())); time.sleep(60)")
    with pytest.raises(Diagnosed, match="did not answer"):
        asyncio.run(Daemon({"MCPIAC_HOME": str(tmp_path / "home")}).ensure())
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_what_it_starts_with_holds_no_secret(tmp_path: Path, stand_in: Path) -> None:
    write(
        stand_in,
        """
        import os, pathlib, socket, sys
        place = pathlib.Path(sys.argv[sys.argv.index("--home") + 1])
        (place / "environ").write_text("\\n".join(os.environ))
        (place / "argv").write_text(" ".join(sys.argv[1:4]))
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(place / "run" / "daemon.sock"))
        server.listen()
        server.accept()
        server.settimeout(3)
        """,
    )
    place = tmp_path / "home"
    environ = {"MCPIAC_HOME": str(place), "PATH": "/usr/bin", "FILES_TOKEN": "x", "MCPIAC_FINGERPRINT_KEY": "y"}
    asyncio.run(Daemon(environ).ensure())
    assert set((place / "environ").read_text().split()) - {"LC_CTYPE"} == {"MCPIAC_HOME", "PATH"}
    assert (place / "argv").read_text() == "-P -m mcpiac.local"
    assert (place / "run").stat().st_mode & 0o777 == 0o700


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Diagnosed) as told:
        asyncio.run(Daemon({"MCPIAC_HOME": str(tmp_path / "file" / "home")}).ensure())
    assert told.value.diagnostics[0].code == "daemon-home"
