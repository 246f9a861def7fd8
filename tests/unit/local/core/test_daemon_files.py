"""The daemon's own files: lock, instance, socket, log."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcpiac.local import daemon


def test_folders_are_closed_to_others(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True, mode=0o755)
    daemon.prepare(home)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home, home / "run", home / "log")} == {0o700}


def test_the_lock_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    daemon.prepare(tmp_path)
    held = daemon.lock(tmp_path)
    with pytest.raises(daemon.AlreadyRunning):
        daemon.lock(tmp_path)
    os.close(held)
    os.close(daemon.lock(tmp_path))


def test_the_instance_never_changes(tmp_path: Path) -> None:
    first = daemon.instance(tmp_path)
    assert daemon.instance(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "instance.json").stat().st_mode) == 0o600
    (tmp_path / "instance.json").write_text("")
    with pytest.raises(ValueError):
        daemon.instance(tmp_path)


def test_a_dead_daemons_socket_is_replaced_and_closed_to_others(tmp_path: Path) -> None:
    run = tmp_path / ("x" * 120)
    run.mkdir()
    daemon.unix_socket(run).close()
    with daemon.unix_socket(run) as made, socket.socket(socket.AF_UNIX) as client:
        folder = os.open(run, os.O_PATH)
        client.connect(f"/proc/self/fd/{folder}/daemon.sock")
        os.close(folder)
        made.accept()[0].close()
    assert stat.S_IMODE((run / "daemon.sock").stat().st_mode) & 0o077 == 0


def test_the_daemon_takes_as_many_descriptors_as_it_may(tmp_path: Path) -> None:
    """Started as by a shell with a low soft limit; its own is the hard one."""
    words = [sys.executable, "-P", "-m", "mcpiac.local", "--home", str(tmp_path / "home"), "--linger", "60"]
    low = (256, 4000)
    with subprocess.Popen(words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, low)) as started:
        try:
            deadline = time.monotonic() + 30
            while not (tmp_path / "home/run/daemon.sock").exists():
                assert started.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert resource.prlimit(started.pid, resource.RLIMIT_NOFILE) == (4000, 4000)
        finally:
            started.terminate()


def test_the_log_is_bounded_and_closed_to_others(tmp_path: Path) -> None:
    daemon.prepare(tmp_path)
    program = (
        "import sys, logging, pathlib\n"
        "from mcpiac.local import daemon\n"
        "daemon.keep_log(pathlib.Path(sys.argv[1]))\n"
        "for number in range(6000):\n"
        "    logging.getLogger('x').info('%d %s', number, 'y' * 1000)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    files = {path.name: path.stat() for path in (tmp_path / "log").iterdir()}
    assert set(files) == {"daemon.log", *(f"daemon.log.{n}" for n in range(1, daemon.LOG_FILES + 1))}
    assert max(about.st_size for about in files.values()) <= daemon.LOG_BYTES
    assert all(about.st_mode & 0o077 == 0 for about in files.values())
