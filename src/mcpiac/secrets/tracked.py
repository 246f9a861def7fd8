"""Is a file in git's index? Read from the index itself: git is not started, since a repository's own configuration
can make it run programs.

Layout: ``gitformat-index(5)``, versions 2 to 4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_LARGEST_INDEX = 64 * 1024 * 1024
_EXTENDED = 0x4000


def by_git(path: Path) -> bool:
    """Whether the work tree around ``path`` tracks it, by the name given or by where symlinks lead.

    False where there is no work tree, or its index cannot be read: this feeds a warning only.
    """
    lexical = Path(os.path.abspath(path))
    return any(_tracks(name) for name in {lexical, path.resolve()})


def _tracks(path: Path) -> bool:
    for folder in path.parents:
        index = _index_of(folder / ".git")
        if index is not None:
            wanted = os.fsencode(path.relative_to(folder))
            return any(name == wanted for name in _entries(index))
    return False


def _index_of(git: Path) -> bytes | None:
    """The index of a ``.git`` folder, or of the one that a ``.git`` file (a worktree's) points to."""
    try:
        if git.is_file():
            head, _, named = git.read_text().partition(":")
            if head != "gitdir":
                return None
            git = git.parent / named.strip()
        if not git.is_dir():
            return None
        index = git / "index"
        return index.read_bytes() if index.stat().st_size <= _LARGEST_INDEX else b""
    except FileNotFoundError:
        return b""
    except (OSError, UnicodeDecodeError):
        return None


def _entries(index: bytes) -> Iterator[bytes]:
    """The paths in an index; ends early where it is not what the format says."""
    if index[:4] != b"DIRC" or len(index) < 12:
        return
    version, count = int.from_bytes(index[4:8], "big"), int.from_bytes(index[8:12], "big")
    at, name = 12, b""
    for _ in range(count):
        start = at
        flags = int.from_bytes(index[at + 60 : at + 62], "big")
        at += 64 if version >= 3 and flags & _EXTENDED else 62
        if version == 4:
            strip, at = _varint(index, at)
            end = index.find(b"\x00", at)
            name = name[: len(name) - strip] + index[at:end]
            at = end + 1
        else:
            end = index.find(b"\x00", at)
            name = index[at:end]
            at = start + (end - start + 8) // 8 * 8
        if end < 0:
            return
        yield name


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Git's offset encoding (as of pack files): the value and where it ends."""
    value = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value = (value << 7) | (byte & 0x7F)
        if not byte & 0x80:
            break
        value += 1
    return value, at
