"""What can be wrong with a state's files, as findings: each names the file, says why, and what to type next."""

from __future__ import annotations

import errno
from pathlib import Path

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, Origin, error

_WHY = {
    errno.ENOSPC: ("the disk is full", "free some space and run the command again"),
    errno.EDQUOT: ("the disk quota is used up", "free some space and run the command again"),
    errno.EROFS: ("the file system is read-only", "use a folder that can be written (`-C DIR`)"),
    errno.EACCES: ("permission denied", "look at the owner of the file: was an earlier run made by another user?"),
    errno.EPERM: ("permission denied", "look at the owner of the file: was an earlier run made by another user?"),
    errno.ELOOP: ("it is a symbolic link", "put the file itself there: a link is never followed"),
    errno.EISDIR: ("it is a folder", "move it away"),
    errno.ENOTDIR: ("a part of its path is not a folder", "move that away"),
    errno.EINVAL: ("it is not a regular file", "move it away"),
}


def unreadable(path: Path, fault: OSError, spare: str) -> Diagnosed:
    """A file that exists but cannot be read."""
    why, hint = _told(fault)
    return error(
        "state-unreadable", f"{path.name} cannot be read: {why}", origin=Origin(str(path)), hint=hint or spare
    )


def unwritable(path: Path, fault: OSError) -> Diagnosed:
    """A write that failed: nothing further is done after it."""
    why, hint = _told(fault)
    return error(
        "state-unwritable",
        f"{path.name} cannot be written: {why}",
        detail="what was done up to here is recorded; nothing more was sent to the provider",
        origin=Origin(str(path)),
        hint=hint,
    )


def cut_short(path: Path) -> Diagnosed:
    """A write that was cancelled while it was under way: whether it is on disk, the next load tells."""
    return error(
        "state-unwritable", f"{path.name}: the run was stopped in the middle of a write", origin=Origin(str(path))
    )


def damaged(path: Path, why: str, spare: str, line: int = 0, code: str = "state-damaged") -> Diagnosed:
    """A file whose content cannot be what we wrote."""
    return error(code, f"{path.name}: {why}", origin=Origin(str(path), line, 1 if line else 0), hint=spare)


def newer(path: Path, found: object, known: int) -> Diagnosed:
    """A file of a later mcpiac."""
    return error(
        "state-newer",
        f"{path.name} has format version {found}; this mcpiac knows up to {known}",
        detail="it was written by a newer mcpiac, and reading it with this one could lose what it says",
        origin=Origin(str(path)),
        hint="use the newer mcpiac: pip install --upgrade mcpiac",
    )


def forked(path: Path, why: str, hint: str) -> Diagnosed:
    """Two histories of one lineage."""
    return error(
        "state-forked",
        f"{path.name}: {why}",
        detail="two copies of this state were each changed; using one would forget what the other knows",
        origin=Origin(str(path)),
        hint=hint,
    )


def invalid(path: Path, broken: list[str]) -> Diagnosed:
    """A state that breaks integrity rules."""
    return Diagnosed(
        *(
            Diagnostic(
                "error",
                "state-invalid",
                f"{path.name}: {what}",
                origin=Origin(str(path)),
                hint="if it was edited by hand, undo that; `mcpiac state repair` shows what can be mended",
            )
            for what in broken
        )
    )


def _told(fault: OSError) -> tuple[str, str]:
    known = _WHY.get(fault.errno or 0)
    return known if known else (fault.strerror or str(fault), "")
