"""Figures of the embedded backend: create, exec, pause, wake, memory. Medians, in milliseconds and MiB.

    python tests/bench/local_backend.py [--sandboxes 100] [--json]

Run from the project's root, with nothing else going on. It makes a home of its own and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.e2e.local_kit import API, LocalDaemon, local_daemon, until

ROUNDS = 20
SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


def milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def resident(pid: int) -> float:
    """MiB of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def helper(pid: int) -> int | None:
    """The daemon's network helper."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    named = [int(each) for each in found if b"netns_zygote" in Path(f"/proc/{each}/cmdline").read_bytes()]
    return named[0] if named else None


def measure(daemon: LocalDaemon, sandboxes: int) -> dict[str, float]:
    client = httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.home / "run" / "daemon.sock")), timeout=60)
    figures = {"daemon_without_sandboxes_mib": resident(daemon.pid)}

    def post(path: str, body: object = None) -> httpx.Response:
        answer = client.post(f"{API}{path}", json=body)
        answer.raise_for_status()
        return answer

    def create() -> str:
        made = post("/sandboxes", {"type": "small", "ttlSeconds": None, "env": {"A": "b"}}).json()["sandbox"]
        while made["state"] == "provisioning":
            made = client.get(f"{API}/sandboxes/{made['id']}").json()["sandbox"]
        assert made["state"] == "ready", made
        return str(made["id"])

    create()  # the first one also chooses a bwrap
    ids: list[str] = []
    figures["create_to_running_ms"] = statistics.median(
        milliseconds(lambda: ids.append(create())) for _ in range(ROUNDS)
    )
    id = ids[0]
    figures["exec_true_ms"] = statistics.median(
        milliseconds(lambda: post(f"/sandboxes/{id}/commands", {"command": "true"})) for _ in range(ROUNDS)
    )
    daemon.put(id, "server.py", SERVER)
    daemon.service(id, {"name": "web", "argv": ["python3", "/home/user/server.py"]})
    url, _, token = post(f"/sandboxes/{id}/host", {"port": 8000}).json()["url"].partition("?_token=")
    hosted = httpx.Client(headers={"Cookie": f"__sbx_auth={token}"}, timeout=60)
    until(lambda: hosted.get(url).status_code == 200, "it answers")
    figures["hosted_call_ms"] = statistics.median(milliseconds(lambda: hosted.get(url)) for _ in range(ROUNDS))
    wakes, pauses = [], []
    for _ in range(ROUNDS):
        pauses.append(milliseconds(lambda: post(f"/sandboxes/{id}/pause")))
        wakes.append(milliseconds(lambda: hosted.get(url).raise_for_status()))
    figures["pause_ms"] = statistics.median(pauses)
    figures["wake_and_call_ms"] = statistics.median(wakes)
    figures["list_ms"] = statistics.median(
        milliseconds(lambda: client.get(f"{API}/sandboxes")) for _ in range(ROUNDS)
    )
    while len(ids) < sandboxes:
        ids.append(create())
    for each in ids:
        post(f"/sandboxes/{each}/pause")
    figures["paused"] = len(ids)
    figures["daemon_with_paused_mib"] = resident(daemon.pid)
    zygote = helper(daemon.pid)
    figures["network_helper_mib"] = resident(zygote) if zygote else 0.0
    figures["list_of_all_ms"] = statistics.median(
        milliseconds(lambda: client.get(f"{API}/sandboxes")) for _ in range(ROUNDS)
    )
    before = cpu_seconds(daemon.pid)
    time.sleep(10)
    figures["daemon_cpu_percent_idle"] = (cpu_seconds(daemon.pid) - before) * 10
    inits = [daemon.runtime(each)["init"][0] for each in ids]
    agents = [int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]) for pid in inits]
    figures["agent_mib"] = statistics.median(resident(pid) for pid in agents)
    figures["agent_private_mib"] = statistics.median(private(pid) for pid in agents)
    client.close()
    hosted.close()
    return figures


def private(pid: int) -> float:
    """MiB that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sandboxes", type=int, default=100, help="how many are paused for the memory figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with local_daemon() as daemon:
        figures = measure(daemon, options.sandboxes)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
