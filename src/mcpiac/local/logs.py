"""A service's log, read from the sandbox's disk: reading it wakes nothing and asks nobody inside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from mcpiac.local.agent.log import MAX_LINE
from mcpiac.local.guestfiles import open_regular
from mcpiac.wire import LogItem

FOLDER = ".mcpiac/log"
TAIL_MAX = 10_000
_READ_MAX = 2 * 1024 * 1024
"""Bytes read from the end of each of the two files."""
_POLL_SECONDS = 0.2
_STREAMS = frozenset({"stdout", "stderr", "system"})


def tail(disk: Path, service: str, lines: int) -> list[LogItem]:
    """The newest lines, oldest first; empty when there is no log."""
    fd = _open(disk, f"{FOLDER}/{service}.log")
    try:
        return _tail(disk, service, lines, b"" if fd is None else _end(fd))
    finally:
        if fd is not None:
            os.close(fd)


async def follow(disk: Path, service: str, lines: int) -> AsyncIterator[LogItem]:
    """The newest lines, then each new one; never ends by itself. A file put aside is left for the new one."""
    path = f"{FOLDER}/{service}.log"
    fd, at, rest = _open(disk, path), 0, b""
    try:
        text = b""
        if fd is not None:
            at = os.fstat(fd).st_size
            text, _, rest = _end(fd, at).rpartition(b"\n")
        for item in _tail(disk, service, lines, text):
            yield item
        while True:
            data = os.pread(fd, 64 * 1024, at) if fd is not None else b""
            if data:
                at += len(data)
                *whole, rest = (rest + data).split(b"\n")
                rest = rest[: 2 * MAX_LINE]
                for line in whole:
                    yield parse(line)
                continue
            fresh = _open(disk, path)
            if fresh is not None and (fd is None or os.fstat(fresh).st_ino != os.fstat(fd).st_ino):
                if fd is not None:
                    os.close(fd)
                fd, at, rest = fresh, 0, b""
                continue
            if fresh is not None:
                os.close(fresh)
            if fd is not None and os.fstat(fd).st_size < at:
                at, rest = 0, b""
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        if fd is not None:
            os.close(fd)


def parse(line: bytes) -> LogItem:
    """``TIME STREAM TEXT``; a line that the guest wrote in another form is text without a time."""
    text = line[: 2 * MAX_LINE].decode("utf-8", "replace")
    at, _, rest = text.partition(" ")
    stream, _, said = rest.partition(" ")
    if stream in _STREAMS and len(at) == 24 and at.endswith("Z"):
        return LogItem(at=at, stream=stream, text=said)
    return LogItem(at="", stream="stdout", text=text)


def _open(disk: Path, path: str) -> int | None:
    try:
        return open_regular(disk, path)
    except OSError:
        return None


def _tail(disk: Path, service: str, lines: int, text: bytes) -> list[LogItem]:
    """The newest of ``text`` (of the newer file), and of the older file where those are too few."""
    lines = max(0, min(lines, TAIL_MAX))
    found = text.split(b"\n")
    if sum(1 for line in found if line) < lines:
        older = _open(disk, f"{FOLDER}/{service}.log.1")
        if older is not None:
            try:
                found = _end(older).split(b"\n") + found
            finally:
                os.close(older)
    kept = [line for line in found if line]
    return [parse(line) for line in kept[-lines:]] if lines else []


def _end(fd: int, size: int | None = None) -> bytes:
    """The last ``_READ_MAX`` bytes before ``size``, from the beginning of a line on."""
    size = os.fstat(fd).st_size if size is None else size
    start = max(0, size - _READ_MAX)
    data = os.pread(fd, size - start, start)
    return data.partition(b"\n")[2] if start else data
