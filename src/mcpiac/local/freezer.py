"""Pause with memory kept: SIGSTOP to every process below a sandbox's first one, SIGCONT to wake them.

The tree is read from ``/proc/PID/task/*/children`` and read again until nothing new appears, so that a process that
forks meanwhile does not slip through: once all are stopped nobody is left who could fork.
"""

from __future__ import annotations

import os
import signal

_ROUNDS = 200


def descendants(pid: int) -> list[int]:
    """All processes below ``pid`` (not itself), from the outside in."""
    found: list[int] = []
    queue = [pid]
    while queue:
        folder = f"/proc/{queue.pop()}/task"
        try:
            tasks = os.listdir(folder)
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"{folder}/{task}/children", "rb", buffering=0) as file:
                    below = [int(word) for word in file.read(1 << 20).split()]
            except OSError:
                continue
            found += below
            queue += below
    return found


def freeze(pid: int) -> int:
    """Stop everything below ``pid``; returns how many processes. Raises RuntimeError when it never settles."""
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        fresh = [each for each in descendants(pid) if each not in stopped]
        if not fresh:
            return len(stopped)
        for each in fresh:
            _signal(each, signal.SIGSTOP)
        stopped.update(fresh)
    thaw(pid)
    raise RuntimeError("the sandbox starts processes faster than they can be stopped")


def thaw(pid: int) -> None:
    """Let everything below ``pid`` run."""
    for each in descendants(pid):
        _signal(each, signal.SIGCONT)


def frozen(pid: int) -> bool:
    """Whether everything below ``pid`` is stopped."""
    return all(_state(each) in ("T", "t", "Z", "X") for each in descendants(pid))


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # it ended, and another's process may have its pid
        return


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read(4096)
    except OSError:
        return "X"
    return chr(stat[stat.rindex(b")") + 2])
