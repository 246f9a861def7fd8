"""The embedded backend as an ordinary user: under a uid that nobody else has, with the system's Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.e2e.local_kit import ORDINARY_UID, LocalDaemon, local_daemon, ordinary_user, until, why_no_ordinary_user
from tests.e2e.test_local_isolation import FORKS

_WHY_NOT = "as an ordinary user all the other tests show this" if os.geteuid() != 0 else why_no_ordinary_user()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "nothing is missing")]


@pytest.fixture(scope="module")
def daemon() -> Iterator[LocalDaemon]:
    with ordinary_user() as (python, uid, _folder), local_daemon(python=python, user=uid) as made:
        yield made


def test_a_sandbox(daemon: LocalDaemon) -> None:
    id = daemon.create(env={"TOKEN": "t"})
    init = daemon.runtime(id)["init"][0]
    status = Path(f"/proc/{init}/status").read_text()
    assert f"Uid:\t{ORDINARY_UID}\t{ORDINARY_UID}" in status
    assert (
        daemon.run(id, "id -un; echo $TOKEN; node -e 'console.log(1+1)'; python3 -c 'print(2)'") == "user\nt\n2\n2\n"
    )
    daemon.put(id, "page", "hello")
    argv = ["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "-d", "/home/user"]
    daemon.service(id, {"name": "web", "argv": argv})
    made = daemon.call("POST", f"/sandboxes/{id}/host", {"port": 8000})
    url, _, token = made["url"].partition("?_token=")
    cookie = {"Cookie": f"__sbx_auth={token}"}
    assert until(lambda: (a := httpx.get(f"{url}/page", headers=cookie)).status_code == 200 and a, "it answers").text
    daemon.call("POST", f"/sandboxes/{id}/pause")
    assert daemon.get(id)["pausedAt"] is not None
    assert httpx.get(f"{url}/page", headers=cookie).text == "hello"
    daemon.end(9)
    daemon.start()
    assert httpx.get(f"{url}/page", headers=cookie).text == "hello"
    assert daemon.runtime(id)["init"][0] == init
    daemon.call("POST", f"/sandboxes/{id}/stop")
    daemon.await_state(id, "archived")
    daemon.delete(id)


def test_the_limit_of_processes_is_each_sandboxs_own(daemon: LocalDaemon) -> None:
    """All sandboxes of an ordinary user have the same uid on the host."""
    first, second = daemon.create(), daemon.create()
    daemon.put(first, "forks.py", FORKS)
    assert 400 < int(daemon.run(first, "python3 forks.py", timeoutSeconds=60)) < 512
    daemon.run(first, "for n in $(seq 300); do sleep 60 & done; true")
    daemon.put(second, "forks.py", FORKS)
    assert 400 < int(daemon.run(second, "python3 forks.py", timeoutSeconds=60)) < 512
