"""Files of the sandbox: whole ones, under /home/user or /tmp."""

from __future__ import annotations

import os
import stat

from .frames import MAX_FILE, pack, unpack
from .spawn import HOME

ROOTS = (HOME, "/tmp")


class FileFault(Exception):
    """``code`` as the API tells it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def resolve(path: object) -> str:
    """Absolute, symlinks followed; raises FileFault ``invalid_path`` when it leads out of the allowed roots."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise FileFault("invalid_path", "path must be a non-empty text")
    real = os.path.realpath(os.path.join(HOME, path))
    if not any(real.startswith(f"{root}/") for root in ROOTS):
        raise FileFault("invalid_path", "the path must resolve under /home/user or /tmp")
    return real


def put(ask: dict) -> dict[str, object]:  # type: ignore[type-arg]
    """Replace a file in one step; missing folders are made, the mode of a file that was there is kept."""
    real = resolve(ask.get("path"))
    data = unpack(ask.get("data"))
    if len(data) > MAX_FILE:
        raise FileFault("file_too_large", f"a file may have {MAX_FILE} bytes")
    try:
        mode = 0o644
        if os.path.lexists(real):
            known = os.lstat(real)
            if not stat.S_ISREG(known.st_mode):
                raise FileFault("invalid_path", "that is no regular file")
            mode = stat.S_IMODE(known.st_mode)
        os.makedirs(os.path.dirname(real), exist_ok=True)
        fresh = f"{real}.{os.getpid()}.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.chmod(fresh, mode)
            os.replace(fresh, real)
        except BaseException:
            os.unlink(fresh)
            raise
    except OSError as fault:
        raise FileFault("file_not_written", f"{ask.get('path')}: {fault.strerror}") from None
    return {"path": real, "size": len(data)}


def get(ask: dict) -> dict[str, object]:  # type: ignore[type-arg]
    """A whole regular file."""
    real = resolve(ask.get("path"))
    try:
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileFault("file_not_found", f"{ask.get('path')} does not exist") from None
    except OSError as fault:
        raise FileFault("file_not_readable", f"{ask.get('path')}: {fault.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode):
            raise FileFault("invalid_path", "that is no regular file")
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise FileFault("file_too_large", f"only files of up to {MAX_FILE} bytes can be read")
    return {"path": real, "size": len(data), "data": pack(data)}
