"""Identities of processes, and stopping a tree of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from mcpiac.local import freezer
from mcpiac.local.identity import Identity, identify

TREE = """
import os, sys, time
for _ in range(2):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
        break
while True:
    time.sleep(0.01)
"""
FORKS = """
import os, time
while True:
    pid = os.fork()
    if pid == 0:
        time.sleep(0.02)
        os._exit(0)
    os.waitpid(-1, os.WNOHANG)
"""


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.005)


@pytest.fixture
def spawn() -> Iterator[Callable[[str], int]]:
    """Start a Python program below a process of its own; returns the pid of that process."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        wrapper = "import os,subprocess,sys; subprocess.Popen([sys.executable,'-c',sys.argv[1]]).wait()"
        started.append(subprocess.Popen([sys.executable, "-c", wrapper, program]))
        return started[-1].pid

    yield start
    for process in started:
        process.send_signal(signal.SIGSTOP)
        for pid in [*freezer.descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def test_a_whole_tree_stops_and_goes_on(spawn: Callable[[str], int]) -> None:
    pid = spawn(TREE)
    until(lambda: len(freezer.descendants(pid)) == 5)
    assert not freezer.frozen(pid)
    assert freezer.freeze(pid) == 5
    until(lambda: freezer.frozen(pid))
    freezer.thaw(pid)
    until(lambda: not freezer.frozen(pid))


def test_one_that_forks_all_the_time_stops_too(spawn: Callable[[str], int]) -> None:
    pid = spawn(FORKS)
    until(lambda: len(freezer.descendants(pid)) >= 3)
    freezer.freeze(pid)
    until(lambda: freezer.frozen(pid))
    alive = set(freezer.descendants(pid))
    assert alive == set(freezer.descendants(pid))


def test_identity() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    known = identify(child.pid)
    assert known.alive
    other = Identity(child.pid, known.started - 1)
    assert not other.alive
    assert not other.kill(), "another process has this pid: it is not touched"
    assert known.alive
    with pytest.raises(ProcessLookupError):
        other.open()
    assert known.kill()
    until(lambda: not known.alive)  # a zombie is not alive
    child.wait()
    assert not known.alive
    assert not known.kill()
    with pytest.raises(ProcessLookupError):
        identify(child.pid)
