"""The embedded backend's API, from outside, on real sandboxes."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.local_kit import LocalDaemon, until

pytestmark = pytest.mark.e2e

CANARY = "canary-5f0c2a"
SERVER = "/usr/bin/env python3 -m http.server 8000 --bind 127.0.0.1 --directory /home/user"


@pytest.fixture(scope="module")
def box(daemon: LocalDaemon) -> Iterator[str]:
    id = daemon.create(env={"TOKEN": CANARY, "MCPIAC_OWNER": "lineage/server/key"})
    yield id
    daemon.delete(id)


def _refused(answer: httpx.Response, status: int, code: str) -> Any:
    """Every refusal has the envelope, with one code in all places and the request's id."""
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert body["error"]["code"] == code
    assert body["ok"] is False
    assert body["status"] == status
    assert body["requestId"] == answer.headers["X-Request-Id"]
    return body


# create


def test_a_new_sandbox(daemon: LocalDaemon, box: str) -> None:
    seen = daemon.get(box)
    assert seen["state"] == "ready"
    assert seen["owner"] == "lineage/server/key"
    assert (seen["type"], seen["vcpu"], seen["memoryGB"]) == ("small", 2, 4)
    assert seen["archiveAfter"] is None
    assert seen["idleMinutes"] == 15
    assert 890 <= seen["idleInSeconds"] <= 900
    assert seen["hosted"] == []
    assert CANARY not in json.dumps(seen)


def test_the_same_key_makes_one_sandbox(daemon: LocalDaemon) -> None:
    body = {"type": "small", "ttlSeconds": 600, "env": {"A": "b"}}
    answers: list[httpx.Response] = []

    def create() -> None:
        answers.append(daemon.send("POST", "/sandboxes", body, headers={"Idempotency-Key": "one"}))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {answer.json()["sandbox"]["id"] for answer in answers}
    assert len(ids) == 1
    assert {answer.status_code for answer in answers} == {202}
    [id] = ids
    other = daemon.send("POST", "/sandboxes", {**body, "env": {"A": CANARY}}, headers={"Idempotency-Key": "one"})
    told = _refused(other, 409, "idempotency_key_reused")
    assert told["error"]["details"] == {"sandboxId": id}
    assert CANARY not in other.text
    daemon.delete(id)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"type": "tiny"}, "invalid_type"),
        ({"ttlSeconds": 0}, "invalid_ttl"),
        ({"ttlSeconds": "8h"}, "invalid_request"),
        ({"env": {"SANDBOXER_TOKEN": CANARY}}, "invalid_env"),
        ({"env": {"A": 1}}, "invalid_request"),
        ({"env": CANARY}, "invalid_request"),
        ({"egress": "all"}, "egress_unsupported"),
        ({"secretsAtRest": "memory"}, "secrets_at_rest_unsupported"),
    ],
)
def test_what_create_refuses(daemon: LocalDaemon, body: dict[str, Any], code: str) -> None:
    before = len(daemon.list())
    answer = daemon.send("POST", "/sandboxes", body)
    _refused(answer, 400, code)
    assert CANARY not in answer.text
    assert len(daemon.list()) == before


def test_no_json(daemon: LocalDaemon) -> None:
    for content in (b"{", b"[]", b"\xff", b"[" * 100_000):
        _refused(daemon.send("POST", "/sandboxes", content=content), 400, "invalid_json")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sandboxes/sbx_x/fork"),
        ("GET", "/named-snapshots"),
        ("POST", "/sandboxes/sbx_x/prompt"),
        ("DELETE", "/limits"),
        ("GET", "/nothing"),
    ],
)
def test_what_is_not_there_says_so(daemon: LocalDaemon, method: str, path: str) -> None:
    _refused(daemon.send(method, path), 501, "not_supported")


def test_an_unknown_sandbox(daemon: LocalDaemon) -> None:
    for method, path in (("GET", ""), ("PATCH", ""), ("POST", "/stop"), ("GET", "/host"), ("POST", "/commands")):
        body = {"command": "true"} if path == "/commands" else None
        _refused(daemon.send(method, f"/sandboxes/sbx_nope{path}", body), 404, "sandbox_not_found")


# list and patch


def test_pages(daemon: LocalDaemon, box: str) -> None:
    made = [daemon.create() for _ in range(3)]
    seen, cursor, requests = [], None, 0
    while True:
        params: dict[str, Any] = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = daemon.call("GET", "/sandboxes", params=params)
        requests += 1
        seen += [item["id"] for item in page["sandboxes"]]
        cursor = page["pageInfo"]["nextCursor"]
        if not page["pageInfo"]["hasMore"]:
            break
    assert cursor is None
    assert requests == 2
    assert seen == [box, *made]
    archived = daemon.call("GET", "/sandboxes", params={"state": "archived,error"})["sandboxes"]
    assert archived == []
    for id in made:
        daemon.delete(id)
    _refused(daemon.send("GET", "/sandboxes", params={"cursor": "x"}), 400, "invalid_cursor")
    _refused(daemon.send("GET", "/sandboxes", params={"limit": "-1"}), 400, "invalid_request")


def test_patch(daemon: LocalDaemon, box: str) -> None:
    seen = daemon.call("PATCH", f"/sandboxes/{box}", {"name": "mcp-x", "ttlSeconds": 7200, "idleMinutes": 3})[
        "sandbox"
    ]
    assert (seen["name"], seen["idleMinutes"]) == ("mcp-x", 3)
    assert seen["archiveAfter"] is not None
    seen = daemon.call("PATCH", f"/sandboxes/{box}", {"ttlSeconds": None, "idleMinutes": 0})["sandbox"]
    assert (seen["name"], seen["archiveAfter"], seen["idleInSeconds"]) == ("mcp-x", None, None)
    for body, code in (
        ({"idleMinutes": -1}, "invalid_idle"),
        ({"idleMinutes": 10081}, "invalid_idle"),
        ({"idleMinutes": None}, "invalid_idle"),
        ({"name": ""}, "invalid_name"),
        ({"ttlSeconds": -5, "name": "y"}, "invalid_ttl"),
        ({"egress": "all"}, "egress_unsupported"),
    ):
        _refused(daemon.send("PATCH", f"/sandboxes/{box}", body), 400, code)
    assert daemon.get(box)["name"] == "mcp-x"


def test_instance_limits_and_me(daemon: LocalDaemon) -> None:
    told = daemon.call("GET", "/instance")
    assert told["pid"] == daemon.pid
    assert told["protocol"] == 1
    assert told["id"] == json.loads((daemon.home / "instance.json").read_text())["id"]
    assert daemon.call("GET", "/limits")["canStart"] is True
    assert daemon.call("GET", "/me")["user"]["id"] == told["id"]


# commands


def test_a_command(daemon: LocalDaemon, box: str) -> None:
    done = daemon.call("POST", f"/sandboxes/{box}/commands", {"command": "echo out; echo err >&2; exit 3"})
    assert (done["exitCode"], done["stdout"], done["stderr"], done["success"]) == (3, "out\n", "err\n", False)
    assert daemon.run(box, "pwd; echo $TOKEN; echo $EXTRA", cwd="..", env={"EXTRA": "e"}) == f"/home\n{CANARY}\ne\n"
    done = daemon.call("POST", f"/sandboxes/{box}/commands", {"command": "kill -TERM $$"})
    assert (done["exitCode"], done["signal"]) == (143, "SIGTERM")
    _refused(daemon.send("POST", f"/sandboxes/{box}/commands", {"command": "true", "cwd": "nope"}), 400, "failed")


def test_a_command_that_takes_too_long(daemon: LocalDaemon, box: str) -> None:
    began = time.monotonic()
    body = {"command": "setsid sh -c 'exec sleep 300' & sleep 300", "timeoutSeconds": 1}
    done = daemon.call("POST", f"/sandboxes/{box}/commands", body)
    assert done["timedOut"] is True
    assert done["exitCode"] is None
    assert time.monotonic() - began < 10
    assert "sleep" not in daemon.run(box, "cat /proc/[0-9]*/comm")


def test_a_command_with_much_output_keeps_its_end(daemon: LocalDaemon, box: str) -> None:
    script = "head -c 20000000 /dev/zero | tr '\\0' x; echo end"
    done = daemon.call("POST", f"/sandboxes/{box}/commands", {"command": script, "timeoutSeconds": 60})
    assert done["exitCode"] == 0
    assert done["stdoutTruncated"] is True
    assert done["stderrTruncated"] is False
    assert done["stdout"].endswith("xend\n")
    assert 8e6 < len(done["stdout"]) < 9e6


def test_a_command_that_leaves_a_child_with_its_output(daemon: LocalDaemon, box: str) -> None:
    began = time.monotonic()
    assert daemon.run(box, "sleep 30 & echo done") == "done\n"
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "body", [{"command": ""}, {"command": "x" * 70_000}, {"command": "a\0b"}, {}, {"command": 1}]
)
def test_bad_commands(daemon: LocalDaemon, box: str, body: dict[str, Any]) -> None:
    assert daemon.send("POST", f"/sandboxes/{box}/commands", body).status_code == 400


@pytest.mark.parametrize("seconds", [0, 601])
def test_bad_timeouts(daemon: LocalDaemon, box: str, seconds: int) -> None:
    body = {"command": "true", "timeoutSeconds": seconds}
    _refused(daemon.send("POST", f"/sandboxes/{box}/commands", body), 400, "invalid_timeout")


def _streamed(daemon: LocalDaemon, method: str, path: str, body: Any = None) -> Iterator[Any]:
    transport = httpx.HTTPTransport(uds=str(daemon.home / "run" / "daemon.sock"))
    with (
        httpx.Client(transport=transport, timeout=60) as client,
        client.stream(method, f"http://daemon/api/v1{path}", json=body) as answer,
    ):
        assert answer.status_code == 200
        for line in answer.iter_lines():
            yield json.loads(line)


def test_a_streamed_command_tells_as_it_goes(daemon: LocalDaemon, box: str) -> None:
    daemon.run(box, "rm -f /tmp/go")
    script = (
        "printf gr; printf '\\303'; sleep 0.1; printf '\\274n'; while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 7"
    )
    frames, text = [], ""
    for frame in _streamed(daemon, "POST", f"/sandboxes/{box}/commands", {"command": script, "stream": True}):
        frames.append(frame)
        text += frame.get("data") or ""
        if text == "grün":
            daemon.put(box, "/tmp/go", "")
    assert frames[0]["type"] == "started"
    assert text == "grün"
    assert (frames[-1]["type"], frames[-1]["exitCode"], frames[-1]["success"]) == ("exit", 7, False)


def test_a_stream_whose_reader_leaves_ends_its_command(daemon: LocalDaemon, box: str) -> None:
    frames = _streamed(
        daemon, "POST", f"/sandboxes/{box}/commands", {"command": "echo $$; while :; do echo y; done", "stream": True}
    )
    assert next(frames)["type"] == "started"
    pid = int(next(frames)["data"].split()[0])
    frames.close()
    until(lambda: daemon.run(box, f"test -e /proc/{pid} || echo gone") == "gone\n", "the command ends")


def test_a_detached_command(daemon: LocalDaemon, box: str) -> None:
    started = daemon.call(
        "POST", f"/sandboxes/{box}/commands", {"command": "cat /tmp/pipe; exit 4", "detached": True}
    )
    daemon.run(box, "rm -f /tmp/pipe; mkfifo /tmp/pipe")
    again = daemon.call(
        "POST", f"/sandboxes/{box}/commands", {"command": "echo a; cat /tmp/pipe; exit 4", "detached": True}
    )
    assert again["processId"] > started["processId"]
    path = f"/sandboxes/{box}/commands/{again['processId']}"
    status = until(lambda: (s := daemon.call("GET", path))["stdout"] == "a\n" and s, "its first line comes")
    assert (status["running"], status["status"], status["exitCode"]) == (True, "running", None)
    daemon.run(box, "echo b > /tmp/pipe")
    ended = until(lambda: not (s := daemon.call("GET", path, params={"stdoutOffset": 2}))["running"] and s, "it ends")
    assert (ended["exitCode"], ended["stdout"], ended["stdoutOffset"], ended["more"]) == (4, "b\n", 2, False)
    frames = list(_streamed(daemon, "GET", f"{path}/stream?stdoutOffset=1"))
    assert [frame["type"] for frame in frames] == ["attached", "stdout", "exit"]
    assert frames[1]["data"] == "\nb\n"
    assert frames[2]["exitCode"] == 4
    notes = {note["processId"]: note for note in daemon.call("GET", f"/sandboxes/{box}/command-history")["commands"]}
    assert notes[again["processId"]]["status"] == "exited"


def test_a_detached_command_is_killed_with_its_children(daemon: LocalDaemon, box: str) -> None:
    before = daemon.run(box, "cat /proc/[0-9]*/comm").split().count("sleep")
    body = {"command": "setsid sleep 444 & sleep 444", "detached": True}
    process = daemon.call("POST", f"/sandboxes/{box}/commands", body)["processId"]

    def sleepers() -> int:
        return daemon.run(box, "cat /proc/[0-9]*/comm").split().count("sleep")

    until(lambda: sleepers() == before + 2, "both run")
    killed = daemon.call("DELETE", f"/sandboxes/{box}/commands/{process}")
    assert killed["signaled"] is True
    until(lambda: sleepers() == before, "both are gone")
    assert daemon.call("DELETE", f"/sandboxes/{box}/commands/{process}")["signaled"] is False
    _refused(daemon.send("GET", f"/sandboxes/{box}/commands/123"), 404, "process_not_found")


# files


def test_files(daemon: LocalDaemon, box: str) -> None:
    daemon.put(box, "deep/er/ümlaut.txt", "grüße\n")
    read = daemon.call("GET", f"/sandboxes/{box}/files", params={"path": "/home/user/deep/er/ümlaut.txt"})
    assert (read["content"], read["encoding"], read["size"]) == ("grüße\n", "utf8", 8)
    data = base64.b64encode(bytes(range(256))).decode()
    daemon.call("PUT", f"/sandboxes/{box}/files", {"path": "/tmp/b", "content": data, "encoding": "base64"})
    read = daemon.call("GET", f"/sandboxes/{box}/files", params={"path": "/tmp/b"})
    assert (read["content"], read["encoding"]) == (data, "base64")
    daemon.run(box, "chmod 600 /tmp/b")
    daemon.call("PUT", f"/sandboxes/{box}/files", {"path": "/tmp/b", "content": "x"})
    assert daemon.run(box, "stat -c %a /tmp/b; ls /tmp/*.new 2>/dev/null; true") == "600\n"


def test_a_large_file(daemon: LocalDaemon, box: str) -> None:
    text = "0123456789abcdef" * (20 * 65536)
    daemon.put(box, "/tmp/large", text)
    assert daemon.call("GET", f"/sandboxes/{box}/files", params={"path": "/tmp/large"})["content"] == text
    daemon.run(box, "head -c 40000000 /dev/zero > /tmp/larger")
    answer = daemon.send("GET", f"/sandboxes/{box}/files", params={"path": "/tmp/larger"})
    _refused(answer, 413, "file_too_large")
    daemon.run(box, "rm /tmp/large*")


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../../etc/passwd", "/home/user", "/tmp", "/run/mcpiac/env", "a\0b"]
)
def test_paths_that_are_refused(daemon: LocalDaemon, box: str, path: str) -> None:
    _refused(daemon.send("PUT", f"/sandboxes/{box}/files", {"path": path, "content": "x"}), 400, "invalid_path")
    _refused(daemon.send("GET", f"/sandboxes/{box}/files", params={"path": path}), 400, "invalid_path")


def test_traps_among_files(daemon: LocalDaemon, box: str) -> None:
    daemon.run(box, "cd /tmp; ln -sf /etc/passwd out; ln -sfn /etc etc; rm -f fifo; mkfifo fifo; ln -sf loop loop")
    for path in ("/tmp/out", "/tmp/etc/passwd"):
        _refused(daemon.send("GET", f"/sandboxes/{box}/files", params={"path": path}), 400, "invalid_path")
        _refused(daemon.send("PUT", f"/sandboxes/{box}/files", {"path": path, "content": "x"}), 400, "invalid_path")
    _refused(daemon.send("GET", f"/sandboxes/{box}/files", params={"path": "/tmp/fifo"}), 400, "invalid_path")
    _refused(
        daemon.send("PUT", f"/sandboxes/{box}/files", {"path": "/tmp/fifo", "content": "x"}), 400, "invalid_path"
    )
    _refused(daemon.send("GET", f"/sandboxes/{box}/files", params={"path": "/tmp/none"}), 404, "file_not_found")
    assert daemon.send("GET", f"/sandboxes/{box}/files", params={"path": "/tmp/loop"}).status_code in (400, 404)


# services and hosted ports


def test_a_service_is_kept_up(daemon: LocalDaemon, box: str) -> None:
    script = "echo up with $PLAIN $FILLED; test -z \"$TOKEN\" && echo blind; trap 'echo bye' TERM; sleep 300 & wait"
    definition = {
        "name": "s1",
        "argv": ["sh", "-c", script],
        "env": {"PLAIN": "p", "FILLED": "<${secret.TOKEN}>"},
        "pass": [],
    }
    daemon.service(box, definition)

    def state() -> Any:
        return daemon.get(box)["services"].get("s1")

    first = until(lambda: (s := state()) and s["state"] == "running" and s, "it runs")
    daemon.service(box, definition)
    assert state()["pid"] == first["pid"], "the same definition changes nothing"
    daemon.run(box, f"kill -9 {first['pid']}")
    second = until(lambda: (s := state()) and s["state"] == "running" and s["pid"] != first["pid"] and s, "again")
    assert second["restarts"] == 1
    assert second["lastExit"] == "killed by SIGKILL"
    lines = [json.loads(line) for line in daemon.send("GET", f"/sandboxes/{box}/logs?service=s1").text.splitlines()]
    assert [f"up with p <{CANARY}>", "blind"] == [line["text"] for line in lines if line["stream"] == "stdout"][:2]
    daemon.run(box, "mcpiac-service stop s1")
    until(lambda: state()["state"] == "stopped", "it is stopped")
    daemon.run(box, "mcpiac-service remove s1")
    until(lambda: state() is None, "it is forgotten")


def test_a_service_that_cannot_run(daemon: LocalDaemon, box: str) -> None:
    daemon.service(box, {"name": "s2", "argv": ["/no/such/program"]})
    seen = until(
        lambda: (s := daemon.get(box)["services"].get("s2")) and s["restarts"] >= 2 and s, "it is tried again"
    )
    assert seen["state"] == "backoff"
    assert "No such file" in seen["lastExit"]
    assert any("cannot start" in line for line in seen["lastLines"])
    daemon.run(box, "mcpiac-service remove s2")
    daemon.service(box, {"name": "s3", "argv": ["true"], "pass": ["GONE"]})
    seen = until(lambda: daemon.get(box)["services"].get("s3"), "it is told")
    assert (seen["state"], seen["lastExit"]) == ("failed", "there is no secret GONE in this sandbox")
    daemon.run(box, "mcpiac-service remove s3")


def test_a_hosted_port(daemon: LocalDaemon, box: str) -> None:
    daemon.put(box, "page.txt", "hello")
    daemon.service(box, {"name": "web", "argv": SERVER.split()})
    made = daemon.call("POST", f"/sandboxes/{box}/host", {"port": 8000, "localhost": True, "title": "t"})
    url, _, token = made["url"].partition("?_token=")
    assert token
    assert made == daemon.call("POST", f"/sandboxes/{box}/host", {"port": 8000, "localhost": True, "title": "t"})
    cookie = {"Cookie": f"__sbx_auth={token}"}
    assert until(
        lambda: (a := httpx.get(f"{url}/page.txt", headers=cookie)).status_code == 200 and a, "it answers"
    ).text
    assert httpx.get(f"{url}/page.txt").status_code == 401
    [listed] = daemon.get(box)["hosted"]
    assert listed["url"] == url, "the list has no token"
    [named] = daemon.call("GET", f"/sandboxes/{box}/host")["ports"]
    assert named["url"] == made["url"]
    daemon.call("DELETE", f"/sandboxes/{box}/host", params={"port": 8000})
    assert daemon.get(box)["hosted"] == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    _refused(daemon.send("DELETE", f"/sandboxes/{box}/host", params={"port": 8000}), 404, "port_not_hosted")
    again = daemon.call("POST", f"/sandboxes/{box}/host", {"port": 8000, "localhost": True, "title": "t"})
    assert again["url"] == made["url"], "hosting it again gives the old URL and token back"
    assert token not in daemon.log
    daemon.call("DELETE", f"/sandboxes/{box}/host", params={"port": 8000})
    daemon.run(box, "mcpiac-service remove web")


# life


def test_stop_and_resume_keep_the_disk_and_the_services(daemon: LocalDaemon) -> None:
    id = daemon.create(env={"A": "old", "B": "gone"})
    daemon.put(id, "kept.txt", "kept")
    daemon.service(id, {"name": "web", "argv": SERVER.split()})
    daemon.call("POST", f"/sandboxes/{id}/stop")
    seen = daemon.await_state(id, "archived")
    assert (seen["expired"], seen["services"]) == (False, {})
    _refused(daemon.send("POST", f"/sandboxes/{id}/commands", {"command": "true"}), 409, "sandbox_not_ready")
    assert "started" in daemon.send("GET", f"/sandboxes/{id}/logs?service=web").text, "logs need no running sandbox"
    daemon.call("POST", f"/sandboxes/{id}/stop")
    assert daemon.get(id)["state"] == "archived"
    daemon.call("POST", f"/sandboxes/{id}/resume", {"env": {"A": "new"}, "type": "large", "ttlSeconds": 600})
    seen = daemon.await_state(id, "ready", "running")
    assert (seen["type"], seen["archiveAfter"] is not None) == ("large", True)
    assert daemon.run(id, "cat kept.txt; echo $A.$B") == "keptnew.\n"
    until(lambda: daemon.get(id)["services"].get("web", {}).get("state") == "running", "its service is back")
    daemon.call("POST", f"/sandboxes/{id}/resume", {})
    assert daemon.run(id, "echo $A") == "new\n", "a resume without env keeps it, and is a no-op when it runs"
    daemon.delete(id)


def test_delete_needs_its_confirmation_and_is_complete(daemon: LocalDaemon) -> None:
    id = daemon.create(env={"T": CANARY})
    _refused(daemon.send("DELETE", f"/sandboxes/{id}"), 400, "confirmation_required")
    _refused(
        daemon.send("DELETE", f"/sandboxes/{id}", headers={"X-Sandboxer-Confirm-Delete": "other"}),
        400,
        "confirmation_required",
    )
    init = daemon.runtime(id)["init"][0]
    daemon.run(id, "mkdir -p a/b; touch a/b/c; chmod 0 a/b; chmod 500 a; ln -s /etc/passwd p; mkfifo f")
    daemon.delete(id)
    assert not Path(f"/proc/{init}").exists()
    assert not list((daemon.home / "sandboxes").glob(f"{id}*"))
    assert not list((daemon.home / "trash").iterdir())
    _refused(daemon.send("GET", f"/sandboxes/{id}"), 404, "sandbox_not_found")
    _refused(daemon.send("GET", "/deletion-operations/del_x"), 404, "deletion_not_found")


def test_a_hung_agent_hangs_nobody_else(daemon: LocalDaemon, box: str) -> None:
    """A guest stops its own agent: other sandboxes answer meanwhile, and the sandbox can be deleted."""
    id = daemon.create()
    init = daemon.runtime(id)["init"][0]
    agent = int(Path(f"/proc/{init}/task/{init}/children").read_text())
    answers: list[httpx.Response] = []

    def stop_it() -> None:
        answers.append(daemon.send("POST", f"/sandboxes/{id}/commands", {"command": "kill -STOP $PPID"}))

    hung = threading.Thread(target=stop_it)
    hung.start()
    until(lambda: Path(f"/proc/{agent}/stat").read_text().rsplit(") ", 1)[1][0] == "T", "the agent is stopped")
    began = time.monotonic()
    assert daemon.run(box, "echo fine") == "fine\n"
    assert len(daemon.list()) == 2
    assert time.monotonic() - began < 5
    daemon.delete(id)
    hung.join(timeout=20)
    _refused(answers[0], 502, "sandbox_direct_failed")


def test_the_log_holds_no_secret(daemon: LocalDaemon) -> None:
    assert CANARY not in daemon.log
