"""Opens a file of a guest's disk from the host, for what must work while the guest sleeps: its logs.

A payload can turn its folder into a trap (symlinks, FIFOs, devices), so: openat2 with RESOLVE_IN_ROOT and
RESOLVE_NO_SYMLINKS, non-blocking, regular files only (openat2(2)).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from pathlib import Path

_SYS_OPENAT2 = 437  # the same on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 0x01, 0x02, 0x04, 0x10
_HOW = struct.Struct("=QQQ")
_libc = ctypes.CDLL(None, use_errno=True)


def open_regular(disk: Path, relative: str) -> int:
    """A read-only descriptor of a regular file below ``disk``. Raises OSError, also for anything else than one."""
    root = os.open(disk, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
        how = _HOW.pack(flags, 0, _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _IN_ROOT)
        fd: int = _libc.syscall(_SYS_OPENAT2, root, os.fsencode(relative), how, ctypes.c_size_t(_HOW.size))
        number = ctypes.get_errno()
    finally:
        os.close(root)
    if fd < 0:
        raise OSError(number, os.strerror(number), relative)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(22, "not a regular file", relative)
    return fd
