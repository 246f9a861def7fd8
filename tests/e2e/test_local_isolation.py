"""What a sandbox must not see, have or reach: asked from inside a real one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.local_kit import LocalDaemon, local_daemon, until

pytestmark = pytest.mark.e2e

OURS = "ours-canary-41d7e0"
THEIRS = "theirs-canary-93ab5c"
CALLERS = "callers-canary-0b66f2"


@pytest.fixture(scope="module")
def daemon() -> Iterator[LocalDaemon]:
    """Started by a caller with a secret in its environment."""
    with local_daemon(environ={"CALLERS_TOKEN": CALLERS, "HOME": "/root"}) as made:
        yield made


@pytest.fixture(scope="module")
def boxes(daemon: LocalDaemon) -> tuple[str, str]:
    return daemon.create(env={"TOKEN": OURS}), daemon.create(env={"TOKEN": THEIRS})


def test_no_environment_but_its_own(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    script = "for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\\0' '\\n' < $f; done 2>/dev/null; env"
    told = daemon.run(boxes[0], script)
    assert OURS in told
    assert THEIRS not in told
    assert CALLERS not in told
    first = daemon.run(boxes[0], "cat /proc/1/environ")
    assert first == ""


def test_no_secret_on_any_command_line_or_in_the_daemons_environment(
    daemon: LocalDaemon, boxes: tuple[str, str]
) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        assert OURS not in words
        assert THEIRS not in words
    environ = Path(f"/proc/{daemon.pid}/environ").read_bytes().decode()
    assert CALLERS not in environ
    assert "HOME=" not in environ


def test_the_secret_file_is_the_users_alone(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    assert daemon.run(boxes[0], "stat -c '%a %U' /run/mcpiac/env") == "600 user\n"
    for path in (daemon.home, daemon.home / "sandboxes", daemon.home / "sandboxes" / boxes[0]):
        assert path.stat().st_mode & 0o077 == 0
    assert (daemon.home / "sandboxes" / boxes[0] / "env.json").stat().st_mode & 0o077 == 0


def test_who_it_is(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    assert daemon.run(boxes[0], "id -un; id -u; hostname; echo $HOME; pwd").split() == [
        "user",
        "1000",
        boxes[0].replace("_", "-"),
        "/home/user",
        "/home/user",
    ]
    status = daemon.run(boxes[0], "grep -E '^(Cap|NoNewPrivs)' /proc/self/status").split("\n")
    assert {line.split()[1] for line in status if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives each sandbox a uid of its own; run this as root")
def test_as_root_each_has_a_host_uid_of_its_own(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    uids = []
    for id in boxes:
        init = daemon.runtime(id)["init"][0]
        status = Path(f"/proc/{init}/status").read_text()
        uids.append(int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1]))
        assert (daemon.home / "sandboxes" / id / "disk").stat().st_uid == uids[-1]
    assert len(set(uids)) == 2
    assert min(uids) >= 0x70000000


@pytest.mark.parametrize(
    "command",
    [
        "ls {home}",
        "cat {home}/instance.json",
        "ls /boot/bwrap",
        "cat /etc/shadow",
        "ls /sys",
        "ls /run/mcpiac/../systemd",
        "touch /usr/x",
        "touch /etc/x",
        "touch /x",
        "touch /dev/x",
        "touch /run/mcpiac/lib/agent/x",
        "touch /opt/node/x",
        "echo x > /etc/passwd",
        "chmod u+w /etc/passwd",
        "mount -t tmpfs x /tmp",
        "mount -o remount,rw /usr",
        "umount /usr",
        "unshare -U true",
        "unshare -n true",
        "unshare -m true",
        "mknod /tmp/null c 1 3",
        "chroot / true",
        "su -c true",
        "hostname other",
        "kill -9 1 && sleep 1 && false",
        "ls /proc/{daemon}/",
        "dd if=/dev/vda of=/dev/null count=1",
        "head -c 700000000 /dev/zero > /tmp/too-much",
        "head -c 100000000 /dev/zero > /dev/shm/too-much",
        "cat /dev/mem",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    ],
)
def test_what_fails_inside(daemon: LocalDaemon, boxes: tuple[str, str], command: str) -> None:
    filled = command.format(home=daemon.home, daemon=daemon.pid)
    done = daemon.call("POST", f"/sandboxes/{boxes[0]}/commands", {"command": filled, "timeoutSeconds": 30})
    daemon.run(boxes[0], "rm -f /tmp/too-much /dev/shm/too-much")
    assert done["exitCode"] not in (0, None), done


def test_a_server_of_another_sandbox_or_of_this_machine_is_not_reached(
    daemon: LocalDaemon, boxes: tuple[str, str]
) -> None:
    daemon.service(boxes[1], {"name": "web", "argv": ["python3", "-m", "http.server", "8000", "--bind", "0.0.0.0"]})
    ask = "python3 -c \"import socket; socket.create_connection(('{}', {}), 3)\""
    until(
        lambda: (
            daemon.call("POST", f"/sandboxes/{boxes[1]}/commands", {"command": ask.format("127.0.0.1", 8000)})[
                "exitCode"
            ]
            == 0
        ),
        "it listens in its own sandbox",
    )
    with socket.create_server(("0.0.0.0", 0)) as host:
        port = host.getsockname()[1]
        accepted: list[object] = []
        threading.Thread(target=lambda: accepted.append(host.accept()), daemon=True).start()
        for address in ("127.0.0.1", "0.0.0.0", "127.1", "::1", "::ffff:127.0.0.1", "10.0.2.2", "169.254.169.254"):
            for number in (8000, port):
                command = ask.format(address, number)
                done = daemon.call("POST", f"/sandboxes/{boxes[0]}/commands", {"command": command})
                assert done["exitCode"] != 0, f"{address}:{number} answered"
        assert accepted == []
        socket.create_connection(("127.0.0.1", port), 3).close()  # the host's own does answer


def test_abstract_sockets_of_this_machine_are_not_reached(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    name = f"mcpiac-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('\\\\0{name}')"
        done = daemon.call("POST", f"/sandboxes/{boxes[0]}/commands", {"command": f'python3 -c "{connect}"'})
        assert "Connection refused" in done["stderr"], done


def test_processes_of_others_are_not_seen(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    daemon.run(boxes[1], "true")
    pids = daemon.run(boxes[0], "ls -d /proc/[0-9]*").split()
    assert len(pids) < 10
    listed = daemon.call("GET", f"/sandboxes/{boxes[0]}/processes")["processes"]
    assert {process["pid"] for process in listed} <= {int(path.rpartition("/")[2]) for path in pids} | {1, 2}


FORKS = """
import os, signal, time
pids = []
try:
    while len(pids) < 5000:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        pids.append(pid)
except BlockingIOError:
    pass
print(len(pids))
for pid in pids:
    os.kill(pid, signal.SIGKILL)
"""


def test_limits(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    daemon.put(boxes[0], "forks.py", FORKS)
    count = int(daemon.run(boxes[0], "python3 forks.py", timeoutSeconds=60))
    assert 400 < count < 512
    assert daemon.run(boxes[1], "echo fine") == "fine\n"
    assert daemon.run(boxes[0], "ulimit -c; ulimit -n") == "0\n16384\n"
    asked = {"command": "python3 -c 'x = bytearray(5 << 30)'"}
    assert "MemoryError" in daemon.call("POST", f"/sandboxes/{boxes[0]}/commands", asked)["stderr"]


def test_a_guest_that_forges_its_logs_and_services(daemon: LocalDaemon, boxes: tuple[str, str]) -> None:
    """What it leaves in its own folder leads nowhere when the daemon looks."""
    script = "cd ~/.mcpiac; mkdir -p log; rm -rf log/evil.log; ln -s /etc/passwd log/evil.log; mkfifo log/pipe.log"
    daemon.run(boxes[0], script)
    for name in ("evil", "pipe", "none"):
        answer = daemon.send("GET", f"/sandboxes/{boxes[0]}/logs?service={name}")
        assert (answer.status_code, answer.text) == (200, "")
    assert daemon.send("GET", f"/sandboxes/{boxes[0]}/logs?service=../../x").status_code == 400


def test_other_users_cannot_use_the_daemon(daemon: LocalDaemon) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(daemon.home / 'run' / 'daemon.sock')!r})"
    done = subprocess.run(
        [sys.executable if os.access(sys.executable, os.X_OK) else "/usr/bin/python3", "-c", program],
        capture_output=True,
        text=True,
        user=65534,
        group=65534,
        extra_groups=[],
        executable="/usr/bin/python3",
    )
    assert done.returncode != 0
    assert "Permission denied" in done.stderr
