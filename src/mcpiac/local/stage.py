"""As root, each sandbox runs as a host uid of its own, which may not walk into root's folders.

So the daemon takes a mount namespace of its own, with a small tmpfs that anyone may walk, and binds there what a
sandbox is to get: its disk, the interpreters, the packages, bwrap itself. The host's mounts never change, and all of
this ends with the daemon. An ordinary user needs none of it: paths stay what they are.
"""

from __future__ import annotations

import ctypes
import errno
import os

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_MNT_DETACH = 2
_PLACES = ("/boot", "/media", "/mnt", "/srv")
"""Folders that exist everywhere; the first that lies above nothing we need is covered, in our namespace only."""

FIRST_UID = 0x70000000
"""Of the range that nobody hands out (systemd's UIDS-GIDS: 1879048192 to 2147483646 is unused)."""
UIDS_PER_DAEMON = 4096
_DAEMONS = 65535


class StageError(OSError):
    """This root may not make a mount namespace."""


def first_uid(instance: str) -> int:
    """The first host uid of a daemon's sandboxes: a slot of the range by its instance id (hex)."""
    return FIRST_UID + int(instance[:8], 16) % _DAEMONS * UIDS_PER_DAEMON


class Stage:
    """Where paths are shown to unprivileged sandboxes. Inactive (an ordinary user): every path is shown as it is."""

    def __init__(self) -> None:
        self.root = ""
        self._libc: ctypes.CDLL | None = None
        self._shown: dict[str, str] = {}
        self._count = 0

    @property
    def active(self) -> bool:
        return self._libc is not None

    def enter(self, needed: list[str]) -> None:
        """Move this process into a mount namespace of its own; before any thread. Raises StageError."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            if self._libc.unshare(_CLONE_NEWNS) != 0:
                number = ctypes.get_errno()
                raise StageError(
                    number,
                    f"root needs a mount namespace here ({os.strerror(number)}); run as an ordinary user instead",
                )
            self._mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
            free = (each for each in _PLACES if os.path.isdir(each) and not any(_under(n, each) for n in needed))
            place = next(free, None)
            if place is None:
                raise StageError(errno.ENOENT, f"none of {', '.join(_PLACES)} can be mounted on")
            self._mount(b"mcpiac", place.encode(), b"tmpfs", 0, b"mode=0755,size=1m")
        except OSError:
            self._libc = None
            raise
        self.root = place

    def show(self, path: str, *, name: str | None = None) -> str:
        """The path under which a sandbox's user reaches ``path``."""
        if not self.active:
            return path
        if path not in self._shown:
            self._count += 1
            target = f"{self.root}/{name or self._count}"
            before = os.umask(0o022)
            try:
                self._make(target, folder=os.path.isdir(path))
            finally:
                os.umask(before)
            self._mount(os.fsencode(path), target.encode(), None, _MS_BIND | _MS_REC, None)
            self._shown[path] = target
        return self._shown[path]

    @staticmethod
    def _make(target: str, *, folder: bool) -> None:
        if folder:
            os.makedirs(target, mode=0o755)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))

    def hide(self, path: str) -> None:
        """Take a path down again; running sandboxes keep what they have."""
        target = self._shown.pop(path, None)
        if target is None or self._libc is None:
            return
        self._libc.umount2(target.encode(), _MNT_DETACH)
        if os.path.isdir(target):
            os.rmdir(target)
        else:
            os.unlink(target)

    def _mount(self, source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
        assert self._libc is not None
        if self._libc.mount(source, target, kind, ctypes.c_ulong(flags), data) != 0:
            number = ctypes.get_errno()
            raise StageError(number, f"{os.strerror(number)}: mount on {target.decode()}")


def _under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
