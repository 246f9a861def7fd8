"""Which process is meant, beyond its pid: a pid is used again, a pid with its start time and boot is not."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import cache

from mcpiac.local.netns import started


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of this boot. ``started`` in clock ticks since boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it exists and has not ended (a zombie has)."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb", buffering=0) as file:
                fields = file.read(4096)
        except (FileNotFoundError, ProcessLookupError):
            return False
        words = fields[fields.rindex(b")") + 2 :].split()
        return int(words[19]) == self.started and words[0] not in (b"Z", b"X")

    def open(self) -> int:
        """A pidfd; raises ProcessLookupError when this process is gone."""
        fd = os.pidfd_open(self.pid)
        if not self.alive:
            os.close(fd)
            raise ProcessLookupError(self.pid)
        return fd

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """Signal exactly this process; False when it is gone."""
        try:
            fd = self.open()
        except ProcessLookupError:
            return False
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


def identify(pid: int) -> Identity:
    """Raises ProcessLookupError."""
    return Identity(pid, started(pid))


@cache
def boot_id() -> str:
    """Of the running kernel; another value means that every recorded pid is void."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
