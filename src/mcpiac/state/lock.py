"""One run at a time: a ``flock`` held for the run, and a holder file that says whose it is.

The holder file is what people read and what `unlock` removes. It outlives a process that was killed: on the same boot
of the same machine the free ``flock`` proves that its holder is dead, and the lock is taken over. Another machine's
holder, or one from before a restart, is never taken over: a folder can be shared over a network where ``flock`` says
nothing.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mcpiac.model.diagnostic import Diagnosed, Origin, error
from mcpiac.state import faults
from mcpiac.state.codec import compact
from mcpiac.state.disk import Disk, Held


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the lock. ``start`` is the process's start in clock ticks since boot; ``since`` ISO 8601 UTC."""

    id: str
    user: str
    host: str
    boot: str
    pid: int
    start: str
    command: str
    since: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid}, `{self.command}`, since {self.since}"


class Processes:
    """Who we are, and who else is alive."""

    def holder(self, command: str, since: str) -> Holder:
        """This process, as it would stand in a holder file."""
        pid = os.getpid()
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        return Holder(secrets.token_hex(4), user, socket.gethostname(), _boot(), pid, _start(pid), command, since)

    def alive(self, holder: Holder) -> bool:
        """Whether that very process runs: ids are used again, a start time with an id is not."""
        if holder.pid == os.getpid():
            return False
        return _start(holder.pid) == holder.start != ""


class Lock:
    """A lock that this process holds."""

    def __init__(self, disk: Disk, held: Held, path: Path, holder: Holder, taken_from: Holder | None) -> None:
        self._disk = disk
        self._held = held
        self._path = path
        self.holder = holder
        self.taken_from = taken_from
        """The dead holder that it was taken over from."""

    def check(self) -> None:
        """Raises ``lock-lost`` when somebody unlocked or replaced it."""
        try:
            there = json.loads(self._disk.read(self._path))["id"]
        except (OSError, ValueError, KeyError, TypeError):
            there = None
        if there != self.holder.id or not self._held.same():
            raise error(
                "lock-lost",
                "the lock of this run was taken away while it ran",
                detail="somebody unlocked it, or the state folder was replaced; nothing more is done",
                origin=Origin(str(self._path)),
                hint="see who else works on this stack, then run `mcpiac plan`",
            )

    def release(self) -> None:
        """Remove our holder file and let others in."""
        try:
            with contextlib.suppress(Diagnosed, OSError):
                self.check()
                self._disk.remove(self._path)
        finally:
            self._held.release()


def acquire(disk: Disk, folder: Path, stack: str, holder: Holder, alive: Callable[[Holder], bool]) -> Lock:
    """Take the lock of a stack at once or raise ``state-locked``, which names the holder."""
    path, shown = folder / f"{stack}.lock", holder_path(folder, stack)
    try:
        held = disk.flock(path)
    except BlockingIOError:
        raise locked(path, read_holder(disk, shown)) from None
    except OSError as fault:
        raise faults.unwritable(path, fault) from None
    try:
        before = read_holder(disk, shown)
        if before is not None and not _ended(before, holder, alive):
            raise locked(path, before, restarted=before.host == holder.host and before.boot != holder.boot)
        try:
            disk.replace(shown, compact(asdict(holder)) + b"\n")
        except OSError as fault:
            raise faults.unwritable(shown, fault) from None
    except BaseException:
        held.release()
        raise
    return Lock(disk, held, shown, holder, before)


def holder_path(folder: Path, stack: str) -> Path:
    """Where the holder of a stack's lock stands."""
    return folder / f"{stack}.holder.json"


def read_holder(disk: Disk, path: Path) -> Holder | None:
    """The holder file; None for none or one that says nothing (it is for people, the ``flock`` decides)."""
    try:
        data: Any = json.loads(disk.read(path))
        return Holder(**{key: data[key] for key in Holder.__slots__})
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise faults.unreadable(path, fault, "") from None
    except (ValueError, KeyError, TypeError):
        return None


def holders(disk: Disk, folder: Path) -> dict[str, Holder]:
    """Stack → who has its lock, or had it when it died."""
    names = [name.removesuffix(".holder.json") for name in disk.names(folder) if name.endswith(".holder.json")]
    found = {name: read_holder(disk, holder_path(folder, name)) for name in names}
    return {name: holder for name, holder in found.items() if holder is not None}


def locked(path: Path, holder: Holder | None, *, restarted: bool = False) -> Diagnosed:
    """The refusal."""
    who = str(holder) if holder else "another process on this machine"
    hint = "wait until it is done"
    if holder is not None:
        hint += f"; if nothing of it runs any more: mcpiac unlock {holder.id}"
    return error(
        "state-locked",
        f"the stack is being worked on by {who}",
        detail="that was before this machine was started last, so the process itself is gone" if restarted else "",
        origin=Origin(str(path)),
        hint=hint,
    )


def _ended(before: Holder, now: Holder, alive: Callable[[Holder], bool]) -> bool:
    return before.host == now.host and before.boot == now.boot and not alive(before)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start(pid: int) -> str:
    """Field 22 of ``/proc/PID/stat`` (proc(5)); '' where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
