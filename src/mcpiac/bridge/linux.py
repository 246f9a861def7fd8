"""What the bridge asks of Linux: die with the parent, reap orphans, list children. Elsewhere: nothing.

Sources: prctl(2), proc(5).
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = None
if sys.platform == "linux":
    try:
        import ctypes

        _libc = ctypes.CDLL(None)
    except (ImportError, OSError):
        _libc = None


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """This process gets the signal when its parent ends. Safe between fork and exec."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def become_reaper() -> None:
    """Orphaned descendants become children of this process instead of init's."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """The pids of this process's children, zombies included."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return _children_by_scan(me)


def _children_by_scan(me: int) -> list[int]:
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == me:
                        found.append(int(name))
            except (OSError, ValueError, IndexError):
                continue
    return found


def marked(pid: int, mark: bytes) -> bool:
    """Whether the process was started with the environment entry `mark`."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
