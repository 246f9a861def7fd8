"""Two processes that watch each other, so that a KILL of either leaves nothing behind.

The first one keeps almost nothing in memory: it forwards signals and, when the second has ended, ends
every descendant that is left. The second does the work; when the first one dies it stops at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from . import linux

PARENT_DIED = signal.SIGUSR1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(work: Callable[[], int]) -> int:
    """Runs `work` in a process of its own; its exit status."""
    linux.become_reaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    parent = os.getpid()
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            os.setpgid(0, 0)  # a terminal's ^C reaches the first process, which forwards it once
            linux.die_with_parent(PARENT_DIED)
            linux.become_reaper()
            signal.signal(PARENT_DIED, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
            if os.getppid() == parent:
                code = work()
        finally:
            sys.stderr.flush()
            os._exit(code)
    for number in _FORWARDED:
        signal.signal(number, lambda got, frame: _kill(worker, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    status = 1
    while True:
        try:
            pid, raw = os.wait()
        except ChildProcessError:
            return status
        if pid == worker:
            status = os.WEXITSTATUS(raw) if os.WIFEXITED(raw) else 128 + os.WTERMSIG(raw)
            break
    for number in _FORWARDED:  # a second signal during the interpreter's own end changes nothing
        signal.signal(number, signal.SIG_IGN)
    _end_all()
    return status


def _end_all() -> None:
    """Ends what is left; each that ends may hand over children of its own."""
    for _ in range(500):
        left = linux.children()
        for pid in left:
            _kill(pid, signal.SIGKILL)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
        time.sleep(0.01)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass
