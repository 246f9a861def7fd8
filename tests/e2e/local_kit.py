"""A daemon of the embedded backend in a folder of its own, spoken to as its clients do, and proof that nothing of it
is left afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from mcpiac.local.identity import Identity, identify

API = "http://daemon/api/v1"
SECONDS = 30.0


def until(holds: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Wait for something to become true; its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


@dataclass
class LocalDaemon:
    """One home folder and the daemon that serves it. ``words``: what it is started with. ``python``, ``user``:
    by which interpreter, and as whom (root only)."""

    home: Path
    words: tuple[str, ...] = ()
    python: str = sys.executable
    user: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    namespaces: set[int] = field(default_factory=set)

    def start(self, *words: str) -> None:
        """Returns when it listens."""
        who: dict[str, Any] = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        done = subprocess.run(
            [self.python, "-P", "-m", "mcpiac.local", "--home", str(self.home), "--detach", *self.words, *words],
            cwd="/",
            env={"PATH": "/usr/bin:/bin", **self.environ},
            capture_output=True,
            text=True,
            timeout=60,
            **who,
        )
        assert done.returncode == 0, done.stderr

    @property
    def pid(self) -> int:
        return int((self.home / "run" / "daemon.pid").read_text())

    def running(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return Path(f"/proc/{self.pid}").exists()
        return False

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the daemon by its pid, and wait until it is gone."""
        self.note_namespaces()
        daemon = identify(self.pid)
        daemon.kill(number)
        until(lambda: not daemon.alive, "the daemon ends")

    @property
    def log(self) -> str:
        return (self.home / "log" / "daemon.log").read_text()

    # its API

    def send(self, method: str, path: str, json: Any = None, **more: Any) -> httpx.Response:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.home / "run" / "daemon.sock"))) as client:
            return client.request(method, f"{API}{path}", json=json, timeout=60, **more)

    def call(self, method: str, path: str, json: Any = None, **more: Any) -> Any:
        """The answer's body; any refusal fails the test."""
        answer = self.send(method, path, json, **more)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def create(self, key: str | None = None, **body: Any) -> str:
        """A sandbox that is up; its id."""
        headers = {"Idempotency-Key": key or secrets.token_hex(8)}
        asked = {"type": "small", "ttlSeconds": None, **body}
        id: str = self.call("POST", "/sandboxes", asked, headers=headers)["sandbox"]["id"]
        self.await_state(id, "ready")
        return id

    def get(self, id: str) -> Any:
        return self.call("GET", f"/sandboxes/{id}")["sandbox"]

    def list(self) -> list[Any]:
        found: list[Any] = []
        cursor: dict[str, Any] = {}
        while True:
            page = self.call("GET", "/sandboxes", params=cursor)
            found += page["sandboxes"]
            if not page["pageInfo"]["hasMore"]:
                return found
            cursor = {"cursor": page["pageInfo"]["nextCursor"]}

    def await_state(self, id: str, *states: str) -> Any:
        def reached() -> Any:
            found = self.get(id)
            return found if found["state"] in states else None

        return until(reached, f"{id} becomes {'/'.join(states)}")

    def run(self, id: str, command: str, **more: Any) -> str:
        """A command's stdout; it must succeed."""
        done = self.call("POST", f"/sandboxes/{id}/commands", {"command": command, **more})
        assert done["exitCode"] == 0, done
        return str(done["stdout"])

    def service(self, id: str, definition: Mapping[str, Any]) -> None:
        self.put(id, "/tmp/service.json", json.dumps(definition))
        self.run(id, "mcpiac-service set < /tmp/service.json")

    def put(self, id: str, path: str, text: str) -> None:
        self.call("PUT", f"/sandboxes/{id}/files", {"path": path, "content": text})

    def delete(self, id: str) -> None:
        confirmed = {"X-Sandboxer-Confirm-Delete": id}
        operation = self.call("DELETE", f"/sandboxes/{id}", headers=confirmed)["operation"]
        path = f"/deletion-operations/{operation['id']}"
        until(lambda: self.call("GET", path)["operation"]["status"] == "completed", f"{id} is removed")

    def runtime(self, id: str) -> Any:
        """What the daemon keeps of a running tree."""
        return json.loads((self.home / "sandboxes" / id / "runtime.json").read_text())

    # proof

    def note_namespaces(self) -> None:
        for path in (self.home / "sandboxes").glob("*/runtime.json"):
            with contextlib.suppress(OSError, ValueError):
                self.namespaces.add(json.loads(path.read_text())["netns"])

    def close(self) -> None:
        """Delete every sandbox, end the daemon, and show that nothing is left: no process, folder, mount."""
        if not self.running():
            self.start()
        self.note_namespaces()
        for box in self.list():
            self.delete(box["id"])
        helpers = _children(self.pid)
        self.end()
        for helper in helpers:
            until(lambda helper=helper: not helper.alive, "the daemon's helper ends")
        inside = until(lambda: not _in_namespaces(self.namespaces) or None, "all sandboxed processes are gone")
        assert inside
        assert not [words for words in _command_lines() if str(self.home) in words]
        assert list((self.home / "sandboxes").iterdir()) == []
        assert list((self.home / "trash").iterdir()) == []
        kept = {"daemon.lock", "start.log"}  # the log is of a start by a command; `daemon logs` shows it afterwards
        assert {path.name for path in (self.home / "run").iterdir()} <= kept
        assert str(self.home) not in Path("/proc/self/mounts").read_text()


ORDINARY_UID = 65123
SYSTEM_PYTHON = "/usr/bin/python3"
_SOURCES = Path(__file__).parents[2] / "src"


def why_no_ordinary_user() -> str:
    """What is missing for ``ordinary_user`` as root; '' when nothing is."""
    if os.geteuid() != 0:
        return ""
    if not os.access(SYSTEM_PYTHON, os.X_OK):
        return f"as root it needs {SYSTEM_PYTHON}"
    wanted = ".".join(map(str, sys.version_info[:2]))
    program = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    if subprocess.run([SYSTEM_PYTHON, "-c", program], capture_output=True, text=True).stdout.strip() != wanted:
        return f"as root it needs {SYSTEM_PYTHON} to be Python {wanted}, whose packages these are"
    for path in (_SOURCES, Path(site.getsitepackages()[0])):
        if not all(each.stat().st_mode & 0o001 for each in (path, *path.parents)):
            return "as root it needs a checkout that other users can read"
    return ""


@contextlib.contextmanager
def ordinary_user() -> Iterator[tuple[str, int | None, Path]]:
    """A Python that has mcpiac, the uid to run it under (None: ours), and a folder of that user's."""
    folder = Path(tempfile.mkdtemp(prefix="mcpiac-user-"))
    try:
        if os.geteuid() != 0:
            yield sys.executable, None, folder
            return
        os.chmod(folder, 0o755)
        subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        [packages] = folder.glob("venv/lib/python*/site-packages")
        (packages / "those.pth").write_text(f"{_SOURCES}\n{site.getsitepackages()[0]}\n")
        (folder / "venv" / "bin" / "uv").symlink_to(Path(sys.executable).with_name("uv"))
        (folder / "own").mkdir()
        os.chown(folder / "own", ORDINARY_UID, ORDINARY_UID)
        yield str(folder / "venv" / "bin" / "python3"), ORDINARY_UID, folder / "own"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def _children(pid: int) -> list[Identity]:
    found = []
    for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            found.append(identify(int(word)))
    return found


def _in_namespaces(namespaces: set[int]) -> list[int]:
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.stat(proc / "ns" / "net").st_ino in namespaces and _alive(int(proc.name)):
                found.append(int(proc.name))
    return found


def _command_lines() -> Iterator[str]:
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")


@contextlib.contextmanager
def local_daemon(*words: str, **more: Any) -> Iterator[LocalDaemon]:
    """A daemon for the time of a ``with``; at its end, nothing of it may be left."""
    folder = Path(tempfile.mkdtemp(prefix="mcpiac-e2e-"))
    if more.get("user") is not None:
        os.chown(folder, more["user"], more["user"])
    made = LocalDaemon(folder / "home", tuple(words), **more)
    try:
        made.start()
        yield made
        made.close()
    except BaseException:
        _sweep(made)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(made: LocalDaemon) -> None:
    """After a failed test: end what it left, by the pids that its own records name."""
    made.note_namespaces()
    if made.running():
        with contextlib.suppress(OSError, AssertionError):
            made.end(signal.SIGKILL)
    for pid in _in_namespaces(made.namespaces):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
