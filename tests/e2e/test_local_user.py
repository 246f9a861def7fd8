"""The embedded backend as an ordinary user: under a uid that nobody else has, with the system's Python."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.e2e.local_kit import LocalDaemon, local_daemon, until

UID = 65123
PYTHON = "/usr/bin/python3"
SOURCES = Path(__file__).parents[2] / "src"


def _why_not() -> str:
    """What is missing for these tests; '' when nothing is."""
    if os.geteuid() != 0:
        return "only root can become another user; as an ordinary user the other tests show the same"
    if not os.access(PYTHON, os.X_OK):
        return f"needs {PYTHON}"
    wanted = ".".join(map(str, sys.version_info[:2]))
    program = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    if subprocess.run([PYTHON, "-c", program], capture_output=True, text=True).stdout.strip() != wanted:
        return f"needs {PYTHON} to be Python {wanted}, whose packages these are"
    if not _reachable(SOURCES) or not _reachable(Path(site.getsitepackages()[0])):
        return "needs a checkout that other users can read"
    return ""


def _reachable(path: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "nothing is missing")]


@pytest.fixture(scope="module")
def daemon() -> Iterator[LocalDaemon]:
    with tempfile.TemporaryDirectory(prefix="mcpiac-venv-") as folder:
        os.chmod(folder, 0o755)
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", f"{folder}/venv"], check=True)
        [packages] = Path(folder).glob("venv/lib/python*/site-packages")
        (packages / "those.pth").write_text(f"{SOURCES}\n{site.getsitepackages()[0]}\n")
        with local_daemon(python=f"{folder}/venv/bin/python3", user=UID) as made:
            yield made


def test_a_sandbox(daemon: LocalDaemon) -> None:
    id = daemon.create(env={"TOKEN": "t"})
    init = daemon.runtime(id)["init"][0]
    status = Path(f"/proc/{init}/status").read_text()
    assert f"Uid:\t{UID}\t{UID}" in status
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
