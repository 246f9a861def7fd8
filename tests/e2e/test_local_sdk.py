"""The service's published SDK against the embedded backend: over TCP, with a key."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sandboxer
from sandboxer import Sandboxer
from tests.e2e.local_kit import LocalDaemon, local_daemon

pytestmark = pytest.mark.e2e

KEY = secrets.token_urlsafe(24)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDaemon]:
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.write_text(f"{KEY}\n")
    with local_daemon("--listen-tcp", "127.0.0.1:0", "--key-file", str(key_file)) as made:
        yield made


@pytest.fixture(scope="module")
def url(daemon: LocalDaemon) -> str:
    return f"http://{(daemon.home / 'run' / 'tcp').read_text().strip()}/api/v1"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Sandboxer]:
    with Sandboxer(api_key=KEY, base_url=url) as made:
        yield made


@pytest.mark.parametrize(
    "key", [None, "wrong", KEY[:-1], f"{KEY}x", "ü"], ids=["none", "wrong", "shorter", "longer", "no-ascii"]
)
def test_no_key_no_answer(url: str, key: str | None) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
    for path in ("/sandboxes", "/instance", "/nothing"):
        answer = httpx.get(f"{url}{path}", headers=headers)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


def test_the_life_of_a_sandbox(client: Sandboxer) -> None:
    box = client.create(type="small", ttl_seconds=None, env={"TOKEN": "abc"}, no_env=True, idempotency_key="sdk-1")
    assert client.create(type="small", ttl_seconds=None, env={"TOKEN": "abc"}, idempotency_key="sdk-1").id == box.id
    box.wait_until_ready(timeout=30)
    assert [each.id for each in client.list()] == [box.id]

    done = box.exec("echo $TOKEN; echo err >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr, done.success) == (3, "abc\n", "err\n", False)
    assert box.exec(["sleep", "30"], timeout_seconds=1).timed_out
    stream = box.exec_stream("echo one; exit 2")
    assert (stream.wait().exit_code, stream.stdout) == (2, "one\n")
    command = box.start("echo hi; exit 4")
    result = command.wait()
    assert (result.exit_code, result.stdout) == (4, "hi\n")
    assert command.status().status == "exited"
    assert box.start("sleep 100").kill().signaled
    assert {record.mode for record in box.history().commands} == {"sync", "stream", "detached"}
    assert box.processes().live

    box.files.write("/home/user/text", "grüße")
    box.files.write("/home/user/bytes", bytes(range(256)))
    assert box.files.read("text") == "grüße"
    assert box.files.read_bytes("bytes") == bytes(range(256))
    with pytest.raises(sandboxer.SandboxerError) as caught:
        box.files.read("/etc/passwd")
    assert caught.value.code == "invalid_path"

    hosted = box.host(8000, localhost=True, title="t")
    assert hosted.url is not None
    assert box.host(8000, localhost=True, title="t").url == hosted.url
    assert client.api.list_hosted_ports(box.id)["ports"][0]["url"] == hosted.url
    client.api.unhost_port(box.id, 8000)

    box.update(name="mcp-sdk", ttl_seconds=3600)
    assert box.name == "mcp-sdk"
    assert box.info.archive_after is not None
    box.stop(timeout=30)
    assert box.state == "archived"
    box.resume(env={"TOKEN": "new"}, timeout=30)
    assert box.exec("echo $TOKEN; cat text").stdout == "new\ngrüße"
    assert client.api.limits().can_start

    operation = box.delete()
    assert operation.target_id == box.id
    with pytest.raises(sandboxer.SandboxerError) as gone:
        box.refresh()
    assert (gone.value.status, gone.value.code) == (404, "sandbox_not_found")


def test_errors_are_the_sdks(client: Sandboxer) -> None:
    with pytest.raises(sandboxer.SandboxerError) as caught:
        client.create(type="small", env={"SANDBOXER_TOKEN": "x"})
    assert (caught.value.status, caught.value.code) == (400, "invalid_env")
    assert caught.value.request_id
    with pytest.raises(sandboxer.SandboxerError) as missing:
        client.api.fork("sbx_x")
    assert (missing.value.status, missing.value.code) == (501, "not_supported")


def test_the_key_is_nowhere(daemon: LocalDaemon) -> None:
    assert KEY not in daemon.log
    assert KEY not in Path(f"/proc/{daemon.pid}/cmdline").read_text()
