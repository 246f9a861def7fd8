"""Every file operation of the state goes through a ``Disk``: a seam that a simulation can crash, tear and fill.

Operations raise ``OSError`` and nothing else. Files are private to the user (0600); symbolic links are never followed
for a state file itself (the folder may be one).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Appender:
    """A file that only grows. ``append`` returns when the bytes are on disk."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, data: bytes) -> None:
        """Write all of ``data`` at the end and have it on disk."""
        _write(self._fd, data)
        os.fdatasync(self._fd)

    def close(self) -> None:
        """No more appends."""
        os.close(self._fd)


class Held:
    """A ``flock`` that this process holds on a file."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    def same(self) -> bool:
        """Whether the file at the path is still the one that is locked."""
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        here = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def release(self) -> None:
        """Let others have it. The file stays: removing it would let two processes lock two files of one name."""
        os.close(self._fd)


class Disk:
    """The real one."""

    def read(self, path: Path) -> bytes:
        """A regular file's bytes; never follows a link, never waits on a device or a FIFO."""
        fd = os.open(path, _READ)
        with open(fd, "rb") as file:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            return file.read()

    def names(self, folder: Path) -> list[str]:
        """What lies in a folder, sorted; nothing where there is no folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, path: Path) -> None:
        """Have the folder, durably."""
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            self.sync_folder(path.parent)

    def create(self, path: Path, data: bytes) -> None:
        """A new file with these bytes on disk; its name is durable only after ``sync_folder``."""
        fd = os.open(path, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Put ``old`` in the place of ``new``, at once and whole."""
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file; none there is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        """Make names in a folder durable. File systems that cannot (EINVAL) are believed to need no help."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as fault:
            if fault.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(fd)

    def appender(self, path: Path) -> Appender:
        """Append to a file that exists."""
        return Appender(os.open(path, _WRITE | os.O_APPEND))

    def flock(self, path: Path) -> Held:
        """Lock a file, made where it does not exist; ``BlockingIOError`` when another process has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return Held(fd, path)

    async def aside(self, work: Callable[[], T]) -> T:
        """Run blocking work without holding up the loop."""
        return await asyncio.to_thread(work)

    def replace(self, path: Path, data: bytes) -> None:
        """Have ``data`` at ``path``, whole and durable or not at all: temporary file in the same folder, fsync,
        rename, fsync of the folder. Call it under the lock: the temporary name is fixed."""
        beside = path.with_name(f".{path.name}.new")
        self.remove(beside)
        self.create(beside, data)
        self.rename(beside, path)
        self.sync_folder(path.parent)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
