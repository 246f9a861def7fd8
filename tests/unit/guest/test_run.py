"""One whole set-up, with a service manager of a few lines in the place of the agent and of systemd."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpiac.guest import setup
from mcpiac.guest.program import run as program
from mcpiac.guest.program.fault import Failed
from mcpiac.model.spec import FileSpec, SecretRef, ServerSpec

SERVE = """
import http.server, json, os, sys
with open(sys.argv[1], "a") as file:
    file.write(json.dumps([os.getpid(), sys.argv[2:], os.environ.get("TOKEN")]) + "\\n")
http.server.HTTPServer((os.environ.get("AT", "127.0.0.1"), int(os.environ["PORT"])), None).serve_forever()
"""


class Supervisor:
    """Keeps one real process; restarts it when it ends, counting."""

    def __init__(self, folder: Path, secrets: dict[str, str]) -> None:
        self.folder = folder
        self.known = secrets
        self.ledger: dict[str, Any] = {}
        self.definition: dict[str, Any] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self.log = folder / "log"

    def path(self) -> str:
        return os.environ["PATH"]

    def secrets(self) -> dict[str, str]:
        return self.known

    def as_user(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return work()

    def load(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.ledger))  # type: ignore[no-any-return]

    def store(self, ledger: dict[str, Any]) -> None:
        self.ledger = ledger

    def prepare(self, packages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return packages

    def put(self, definition: dict[str, Any]) -> None:
        self.definition = definition
        self.restart()

    def restart(self) -> None:
        self.stop()
        self.restarts = 0
        self._start()

    def _start(self) -> None:
        assert self.definition is not None
        environ = {"PATH": os.environ["PATH"]}
        environ |= {name: self._text(pieces) for name, pieces in self.definition["env"].items()}
        environ |= {name: self.known[name] for name in self.definition["pass"]}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self._text(pieces) for pieces in self.definition["argv"]],
                env=environ,
                cwd=self.definition["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _text(self, pieces: list[list[str]]) -> str:
        return "".join(self.known[piece] if kind == "secret" else piece for kind, piece in pieces)

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def status(self) -> dict[str, Any]:
        last = None
        if self.process is not None and self.process.poll() is not None:
            last = f"exit code {self.process.returncode}"
            self.restarts += 1
            self._start()
        state = "absent" if self.definition is None else "stopped" if self.process is None else "running"
        pid = None if self.process is None else self.process.pid
        up = state == "running"
        return {"state": state, "up": up, "over": False, "pid": pid, "restarts": self.restarts, "last_exit": last}

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()[-20:]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path, {"TOKEN": "t'o$k"})
    yield made
    made.stop()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def values(home: Path, spec: ServerSpec, port: int, **rest: Any) -> dict[str, Any]:
    made = setup.render(spec, server="s", kind="agent", port=port, wait=5, **rest)
    found: dict[str, Any] = json.loads(made.files["/home/user/.mcpiac/s.setup.json"])
    return {**found, "home": str(home)}


def serving(home: Path, *args: str, **rest: Any) -> ServerSpec:
    return ServerSpec(
        command=(sys.executable, "-c", SERVE, str(home / "starts"), *args),
        transport="http",
        secrets={"TOKEN": SecretRef("env:X")},
        **rest,
    )


def starts(home: Path) -> list[Any]:
    return [json.loads(line) for line in (home / "starts").read_text().splitlines()]


def test_the_second_run_changes_nothing(tmp_path: Path, manager: Supervisor, port: int) -> None:
    spec = serving(tmp_path, "a b", "${secret.TOKEN}", files={f"{tmp_path}/f": FileSpec("x")})
    facts = program.run(values(tmp_path, spec, port), manager)
    assert facts["changed"]
    assert facts["listen"] == [f"127.0.0.1:{port}"]
    assert facts["files"] == {f"{tmp_path}/f": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}
    again = program.run(values(tmp_path, spec, port), manager)
    assert not again["changed"]
    assert [start[1:] for start in starts(tmp_path)] == [[["a b", "t'o$k"], "t'o$k"]]


def test_only_what_changed_restarts(tmp_path: Path, manager: Supervisor, port: int) -> None:
    spec = serving(tmp_path, files={f"{tmp_path}/f": FileSpec("x")})
    program.run(values(tmp_path, spec, port), manager)
    changed = serving(tmp_path, files={f"{tmp_path}/f": FileSpec("y")})
    assert program.run(values(tmp_path, changed, port), manager)["restarted"]
    assert program.run(values(tmp_path, serving(tmp_path, "more"), port, remove={}), manager)["restarted"]
    assert len(starts(tmp_path)) == 3
    assert not program.run(values(tmp_path, serving(tmp_path, "more"), port), manager)["restarted"]


def test_a_stopped_service_is_started(tmp_path: Path, manager: Supervisor, port: int) -> None:
    spec = serving(tmp_path)
    program.run(values(tmp_path, spec, port), manager)
    manager.stop()
    assert program.run(values(tmp_path, spec, port), manager)["restarted"]
    assert len(starts(tmp_path)) == 2


def test_a_failed_run_is_done_over(tmp_path: Path, manager: Supervisor, port: int) -> None:
    """What was written before the fault still restarts the service afterwards."""
    program.run(values(tmp_path, serving(tmp_path), port), manager)
    broken = ServerSpec(command=("/no/such/program",), transport="http", files={f"{tmp_path}/f": FileSpec("x")})
    with pytest.raises(Failed):
        program.run(values(tmp_path, broken, port), manager)
    mended = serving(tmp_path, files={f"{tmp_path}/f": FileSpec("x")})
    facts = program.run(values(tmp_path, mended, port), manager)
    assert facts["restarted"]


def told(tmp_path: Path, manager: Supervisor, spec: ServerSpec, port: int, **rest: Any) -> dict[str, Any]:
    with pytest.raises(Failed) as failed:
        program.run({**values(tmp_path, spec, port), **rest}, manager)
    return failed.value.told


def test_a_server_that_exits_at_once(tmp_path: Path, manager: Supervisor, port: int) -> None:
    spec = ServerSpec(command=(sys.executable, "-c", "import sys; sys.exit('no key')"), transport="http")
    said = told(tmp_path, manager, spec, port)
    assert said["code"] == "server-exits"
    assert "exit code 1" in said["summary"]
    assert "no key" in said["lines"]


def test_a_server_that_never_listens(tmp_path: Path, manager: Supervisor, port: int) -> None:
    script = "import time; print('here I am', flush=True); time.sleep(60)"
    spec = ServerSpec(command=(sys.executable, "-c", script), transport="http")
    said = told(tmp_path, manager, spec, port, wait=0.5)
    assert said["code"] == "server-never-listens"
    assert "here I am" in said["lines"]


def test_a_port_that_is_taken_in_the_guest(tmp_path: Path, manager: Supervisor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        said = told(tmp_path, manager, serving(tmp_path), held.getsockname()[1])
    assert said["code"] == "guest-port-taken"
    assert manager.definition is None


def test_a_program_that_is_not_there(tmp_path: Path, manager: Supervisor, port: int) -> None:
    said = told(tmp_path, manager, ServerSpec(command=("no-such-program",), transport="http"), port)
    assert said["code"] == "entry-not-found"
    (tmp_path / "plain.txt").write_text("")
    said = told(tmp_path, manager, ServerSpec(command=("./plain.txt",), transport="http"), port)
    assert said["code"] == "entry-not-found"


def test_a_program_behind_a_bridge_that_is_not_there(tmp_path: Path, manager: Supervisor, port: int) -> None:
    said = told(tmp_path, manager, ServerSpec(command=("no-such-program", "arg")), port)
    assert said["code"] == "entry-not-found"
    assert "no-such-program" in said["summary"]


def test_a_secret_that_the_sandbox_lacks(tmp_path: Path, manager: Supervisor, port: int) -> None:
    spec = ServerSpec(command=("true",), transport="http", secrets={"OTHER": SecretRef("env:O")})
    assert told(tmp_path, manager, spec, port)["code"] == "guest-secret-missing"


@pytest.mark.skipif(shutil.which("ip") is None and not Path("/sys/class/net").exists(), reason="needs a network")
def test_a_server_that_listens_on_all_addresses(tmp_path: Path, manager: Supervisor, port: int) -> None:
    if os.listdir("/sys/class/net") == ["lo"]:
        pytest.skip("this machine has only lo")
    said = told(tmp_path, manager, serving(tmp_path, env={"AT": "0.0.0.0"}), port)
    assert said["code"] == "listens-on-all"
    any_address = serving(tmp_path, env={"AT": "0.0.0.0"}, bind="any")
    assert program.run(values(tmp_path, any_address, port), manager)["listen"] == [f"0.0.0.0:{port}"]


def test_two_set_ups_never_run_together(tmp_path: Path) -> None:
    inside = threading.Event()
    order: list[str] = []

    def second() -> None:
        inside.wait(10)
        order.append("asked")
        with program.locked(str(tmp_path / "lock")):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with program.locked(str(tmp_path / "lock")):
        inside.set()
        while "asked" not in order:
            pass
        order.append("first")
    thread.join(10)
    assert order == ["asked", "first", "second"]
