"""A file's bytes become text, or one finding: what it is on disk, how large, which encoding."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, Origin

LARGEST = 5_000_000
"""Bytes; a larger file is refused."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def shown(path: Path, root: Path) -> str:
    """The path as messages name it: from the project's root where it lies inside, else as it was given."""
    try:
        return str(path.absolute().relative_to(root.absolute()))
    except ValueError:
        return str(path)


def kind_of(mode: int) -> str:
    """What a file of this ``st_mode`` is, in words."""
    return next((words for test, words in _KINDS if test(mode)), "no regular file")


def read_text(path: Path, file: str) -> str:
    """The text of a YAML file without its byte order mark; ``Diagnosed`` with one error that names ``file``.

    Opening never waits: a pipe or a device is refused before it is read.
    """
    return decode(_read_bytes(path, file), file)


def decode(data: bytes, file: str) -> str:
    """UTF-8 bytes as text without a byte order mark; ``Diagnosed`` at the first byte that is no UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        before = data[: fault.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        raise _fault(
            "not-utf8",
            "the file is not UTF-8 text",
            "save it as UTF-8",
            Origin(file, line, column),
        ) from None


def _read_bytes(path: Path, file: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        raise _unopened(fault, file) from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise _fault(
                "not-a-file", f"this is {kind_of(mode)}, not a stack file", "name a .yaml file", Origin(file)
            )
        with os.fdopen(handle, "rb", closefd=False) as stream:
            data = stream.read(LARGEST + 1)
    except OSError as fault:
        raise _unopened(fault, file) from None
    finally:
        os.close(handle)
    if len(data) > LARGEST:
        raise _fault(
            "file-too-large",
            "the file is larger than 5 MB",
            "split the stack into several files, or put large contents beside it and use `from:`",
            Origin(file),
        )
    return data


def _unopened(fault: OSError, file: str) -> Diagnosed:
    if fault.errno in (errno.ENOENT, errno.ENOTDIR):
        return _fault("file-not-found", "there is no such file", "`mcpiac init` writes a first stack", Origin(file))
    if fault.errno in (errno.EACCES, errno.EPERM):
        return _fault(
            "not-readable", "no permission to read this file", "give your user the right to read it", Origin(file)
        )
    if fault.errno == errno.ENXIO:
        return _fault(
            "not-a-file", "this is a socket or a device, not a stack file", "name a .yaml file", Origin(file)
        )
    return _fault("not-readable", f"the file cannot be read: {os.strerror(fault.errno or 0)}", "", Origin(file))


def _fault(code: str, summary: str, hint: str, origin: Origin) -> Diagnosed:
    return Diagnosed(Diagnostic("error", code, summary, origin=origin, hint=hint))
