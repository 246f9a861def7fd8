"""The life of sandboxes and of their daemon: pauses, deadlines, kills, restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.local_kit import LocalDaemon, local_daemon, until

pytestmark = pytest.mark.e2e

COUNTER = """
import http.server, os, time
count = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global count
        count += 1
        if self.path == "/slow":
            time.sleep(2.5)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.getpid()} {count}".encode())
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


class Counter:
    """A sandbox with a server that counts its calls in memory, behind a hosted URL."""

    def __init__(self, daemon: LocalDaemon) -> None:
        self.daemon = daemon
        self.id = daemon.create(env={"TOKEN": "x"})
        daemon.put(self.id, "counter.py", COUNTER)
        daemon.service(self.id, {"name": "counter", "argv": ["python3", "/home/user/counter.py"]})
        made = daemon.call("POST", f"/sandboxes/{self.id}/host", {"port": 8000})
        self.url, _, token = made["url"].partition("?_token=")
        self.cookie = {"Cookie": f"__sbx_auth={token}"}
        self.ask()

    def get(self, path: str = "/") -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=self.cookie, timeout=60)

    def ask(self, path: str = "/") -> tuple[int, int]:
        """Its pid, and how often it was asked."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        pid, count = answer.text.split()
        return int(pid), int(count)


def _inside(daemon: LocalDaemon, id: str) -> dict[int, str]:
    """Host pids of everything in a sandbox, and their states."""
    found: dict[int, str] = {}
    queue = [daemon.runtime(id)["init"][0]]
    while queue:
        pid = queue.pop()
        stat = Path(f"/proc/{pid}/stat").read_text()
        found[pid] = stat[stat.rindex(")") + 2]
        queue += [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found


# pause and wake


def test_an_idle_sandbox_is_paused_and_a_call_wakes_it(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    pid, count = counter.ask()
    before = _inside(own_daemon, counter.id)
    own_daemon.call("PATCH", f"/sandboxes/{counter.id}", {"idleMinutes": 1})  # half a second
    seen = own_daemon.await_state(counter.id, "idle")
    assert seen["pausedAt"] is not None
    assert seen["idleInSeconds"] is None
    states = _inside(own_daemon, counter.id)
    assert set(states) == set(before)
    assert [state for pid, state in states.items() if state != "T"] == ["S"], "all but the first process are stopped"
    assert own_daemon.send("GET", f"/sandboxes/{counter.id}/logs?service=counter").status_code == 200
    assert own_daemon.get(counter.id)["pausedAt"] == seen["pausedAt"], "looking wakes nothing"
    assert httpx.get(counter.url).status_code == 401
    assert own_daemon.get(counter.id)["pausedAt"] == seen["pausedAt"], "without the token nothing is woken"
    assert counter.ask() == (pid, count + 1), "the same process, its memory kept"
    seen = own_daemon.get(counter.id)
    assert (seen["pausedAt"], seen["memoryRestored"]) == (None, True)


def test_a_connection_that_was_open_goes_on_after_a_pause(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    with httpx.Client(headers=counter.cookie, timeout=30) as client:
        first = client.get(counter.url).text
        own_daemon.call("POST", f"/sandboxes/{counter.id}/pause")
        assert own_daemon.get(counter.id)["state"] == "idle"
        second = client.get(counter.url).text
    assert first.split()[0] == second.split()[0]
    assert int(second.split()[1]) == int(first.split()[1]) + 1


def test_many_calls_at_once_wake_it_once(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    own_daemon.call("POST", f"/sandboxes/{counter.id}/pause")
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(counter.get().status_code)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 20
    assert own_daemon.log.count(f"{counter.id}: woken") == 1


def test_what_awaits_an_answer_is_not_paused(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    own_daemon.call("PATCH", f"/sandboxes/{counter.id}", {"idleMinutes": 1})
    counter.ask("/slow")  # five times the idle delay
    own_daemon.run(counter.id, "sleep 1.5")
    assert f"{counter.id}: paused" not in own_daemon.log
    own_daemon.await_state(counter.id, "idle")
    process = own_daemon.call("POST", f"/sandboxes/{counter.id}/commands", {"command": "sleep 60", "detached": True})
    own_daemon.call("GET", f"/sandboxes/{counter.id}/commands/{process['processId']}")
    refused = own_daemon.send("POST", f"/sandboxes/{counter.id}/pause")
    until(
        lambda: own_daemon.send("POST", f"/sandboxes/{counter.id}/pause").status_code == 409, "a detached one counts"
    )
    assert refused.json()["code"] == "sandbox_busy"


def test_off_means_never(own_daemon: LocalDaemon) -> None:
    kept, paused = own_daemon.create(), own_daemon.create()
    own_daemon.call("PATCH", f"/sandboxes/{kept}", {"idleMinutes": 0})
    own_daemon.call("PATCH", f"/sandboxes/{paused}", {"idleMinutes": 2})
    own_daemon.await_state(paused, "idle")
    assert own_daemon.get(kept)["state"] == "ready"
    own_daemon.call("POST", f"/sandboxes/{paused}/wake")
    assert own_daemon.get(paused)["state"] == "ready"


# deadlines


def test_its_time_is_up(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    own_daemon.call("PATCH", f"/sandboxes/{counter.id}", {"ttlSeconds": 1})
    own_daemon.call("POST", f"/sandboxes/{counter.id}/pause")
    seen = own_daemon.await_state(counter.id, "archived")
    assert seen["expired"] is True
    answer = counter.get()
    assert answer.status_code == 503
    assert "--renew" in answer.text
    assert httpx.get(counter.url).status_code == 401
    own_daemon.call("POST", f"/sandboxes/{counter.id}/resume", {"ttlSeconds": 600})
    own_daemon.await_state(counter.id, "ready")
    assert own_daemon.get(counter.id)["expired"] is False
    assert counter.ask()[1] == 1, "its service came back with it"


def test_a_deadline_that_passes_while_no_daemon_runs(own_daemon: LocalDaemon) -> None:
    id = own_daemon.create(ttlSeconds=1)
    own_daemon.end(signal.SIGKILL)
    deadline = json.loads((own_daemon.home / "sandboxes" / id / "record.json").read_text())["deadline"]
    until(lambda: time.time() > deadline, "it passes")
    own_daemon.start()
    assert own_daemon.await_state(id, "archived")["expired"] is True


# the daemon dies, the sandboxes do not


def test_kill_nine_and_start_again(own_daemon: LocalDaemon) -> None:
    busy, asleep, stopped = Counter(own_daemon), Counter(own_daemon), Counter(own_daemon)
    own_daemon.call("POST", f"/sandboxes/{asleep.id}/pause")
    own_daemon.call("POST", f"/sandboxes/{stopped.id}/stop")
    own_daemon.await_state(stopped.id, "archived")
    instance = own_daemon.call("GET", "/instance")["id"]
    before = {id: _inside(own_daemon, id) for id in (busy.id, asleep.id)}
    counts = busy.ask()
    order = [box["id"] for box in own_daemon.list()]
    transport = httpx.HTTPTransport(uds=str(own_daemon.home / "run" / "daemon.sock"))
    follow = f"http://daemon/api/v1/sandboxes/{busy.id}/logs?service=counter&follow=true"
    with httpx.Client(transport=transport) as client, client.stream("GET", follow) as logs:
        next(logs.iter_lines())
        own_daemon.end(signal.SIGKILL)
    with pytest.raises(httpx.ConnectError):
        busy.get()
    own_daemon.start()
    assert own_daemon.call("GET", "/instance")["id"] == instance
    assert [box["id"] for box in own_daemon.list()] == order
    assert {id: set(_inside(own_daemon, id)) for id in before} == {id: set(seen) for id, seen in before.items()}
    assert own_daemon.get(asleep.id)["pausedAt"] is not None
    assert own_daemon.get(stopped.id)["state"] == "archived"
    assert busy.ask() == (counts[0], counts[1] + 1)
    assert asleep.ask()[1] == 2
    until(lambda: own_daemon.get(busy.id)["services"]["counter"]["state"] == "running", "its service is known again")


def test_a_polite_end_leaves_sandboxes_too(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    before = counter.ask()
    own_daemon.call("POST", "/shutdown")
    until(lambda: not own_daemon.running(), "the daemon ends")
    assert not (own_daemon.home / "run" / "daemon.sock").exists()
    own_daemon.start()
    assert counter.ask() == (before[0], before[1] + 1)


def test_what_ended_while_no_daemon_ran_comes_back(own_daemon: LocalDaemon) -> None:
    """As after a reboot: the processes are gone, what should run is started again, services too."""
    counter = Counter(own_daemon)
    init = own_daemon.runtime(counter.id)["init"][0]
    own_daemon.end(signal.SIGKILL)
    os.kill(init, signal.SIGKILL)
    own_daemon.start()
    assert counter.ask()[1] == 1
    assert own_daemon.runtime(counter.id)["init"][0] != init


def test_a_recorded_pid_of_another_boot_is_nobody(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    runtime = own_daemon.runtime(counter.id)
    own_daemon.end(signal.SIGKILL)
    os.kill(runtime["init"][0], signal.SIGKILL)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    try:
        path = own_daemon.home / "sandboxes" / counter.id / "runtime.json"
        path.write_text(json.dumps({**runtime, "boot": "another", "init": [other.pid, 1], "monitor": [other.pid, 1]}))
        own_daemon.start()
        assert counter.ask()[1] == 1
        own_daemon.call("POST", f"/sandboxes/{counter.id}/stop")
        own_daemon.await_state(counter.id, "archived")
        assert other.poll() is None, "who has that pid now is left alone"
    finally:
        other.kill()
        other.wait()


def test_a_tree_that_is_killed_is_started_again(own_daemon: LocalDaemon) -> None:
    counter = Counter(own_daemon)
    first = own_daemon.runtime(counter.id)["init"][0]
    os.kill(first, signal.SIGKILL)
    until(lambda: "started again" in own_daemon.log, "it is noticed")
    assert counter.ask()[1] == 1, "a call meanwhile is held until it is back"
    assert own_daemon.runtime(counter.id)["init"][0] != first


def test_half_made_and_half_deleted_ones_are_finished(own_daemon: LocalDaemon) -> None:
    id = own_daemon.create()
    init = own_daemon.runtime(id)["init"][0]
    own_daemon.end(signal.SIGKILL)
    path = own_daemon.home / "sandboxes" / id / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "wanted": "deleted"}))
    half = own_daemon.home / "sandboxes" / "sbx_half"
    (half / "disk").mkdir(parents=True)
    scraps = own_daemon.home / "trash" / "sbx_scraps"
    scraps.mkdir()
    own_daemon.start()
    assert own_daemon.list() == []
    until(lambda: not any(path.exists() for path in (path.parent, half, scraps)), "the folders go")
    until(lambda: not Path(f"/proc/{init}").exists(), "the processes go")


def test_one_whose_record_cannot_be_read_is_shown_and_can_only_be_deleted(own_daemon: LocalDaemon) -> None:
    """It must not look as if it were gone."""
    id, other = own_daemon.create(), own_daemon.create()
    init = own_daemon.runtime(id)["init"][0]
    own_daemon.end(signal.SIGKILL)
    path = own_daemon.home / "sandboxes" / id / "record.json"
    path.write_text("")
    own_daemon.start()
    assert own_daemon.get(other)["state"] == "ready"
    seen = own_daemon.get(id)
    assert seen["state"] == "error"
    assert "record.json" in seen["error"]
    for method, path_of in (("PATCH", ""), ("POST", "/resume"), ("POST", "/host")):
        refused = own_daemon.send(method, f"/sandboxes/{id}{path_of}", {"port": 1})
        assert (refused.status_code, refused.json()["code"]) == (409, "record_unreadable")
    assert path.read_text() == ""
    own_daemon.delete(id)
    assert not Path(f"/proc/{init}").exists()


def test_a_create_survives_a_kill_right_after_its_answer(own_daemon: LocalDaemon) -> None:
    body = {"type": "small", "ttlSeconds": None, "env": {"A": "b"}}
    headers = {"Idempotency-Key": "k-1"}
    id = own_daemon.call("POST", "/sandboxes", body, headers=headers)["sandbox"]["id"]
    own_daemon.end(signal.SIGKILL)
    own_daemon.start()
    assert own_daemon.call("POST", "/sandboxes", body, headers=headers)["sandbox"]["id"] == id
    own_daemon.await_state(id, "ready")
    assert own_daemon.run(id, "echo $A") == "b\n"


# the daemon itself


def test_there_is_one_daemon_for_a_home(own_daemon: LocalDaemon) -> None:
    pid = own_daemon.pid
    own_daemon.start()
    assert own_daemon.pid == pid
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mcpiac.local", "--home", str(own_daemon.home)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_it_leaves_when_nobody_needs_it() -> None:
    with local_daemon("--linger", "3") as daemon:
        id = daemon.create()
        first = daemon.pid
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 4, "more than the linger passes")
        assert daemon.pid == first
        daemon.delete(id)
        until(lambda: not daemon.running(), "it leaves")
        assert not (daemon.home / "run" / "daemon.sock").exists()


def test_it_says_why_it_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")

    def start(*words: str) -> Any:
        return subprocess.run(
            [sys.executable, "-P", "-m", "mcpiac.local", "--home", str(tmp_path / "home"), *words],
            capture_output=True,
            text=True,
            timeout=30,
        )

    for words in ((), ("--detach",)):
        done = start(*words)
        assert done.returncode == 1
        assert "cannot start" in done.stderr
    (tmp_path / "home").unlink()
    for address, why in (("0.0.0.0:1", "127.0.0.1:PORT"), ("127.0.0.1:0", "--key-file")):
        done = start("--detach", "--listen-tcp", address)
        assert done.returncode == 1
        assert why in done.stderr


def test_a_home_with_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with local_daemon() as daemon:
        daemon.end()
        daemon.home = deep / "home"
        daemon.start()
        assert len(str(daemon.home / "run" / "daemon.sock")) > 120
        short = tmp_path / "s"
        short.symlink_to(deep)
        daemon.home = short / "home"
        id = daemon.create()
        assert daemon.run(id, "echo fine") == "fine\n"
        daemon.delete(id)
